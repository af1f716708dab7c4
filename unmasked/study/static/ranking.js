// Ranking options: by dragging letters, with radio buttons, with keys.

import { look } from "./looking.js";
import { byId, COUNT, LETTERS } from "./parts.js";
import { changed, flush, state } from "./saving.js";

const ORDINALS = ["", "1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th"];
const options = [...document.querySelectorAll(".option")];
const lanes = [...document.querySelectorAll(".lane")];
const chips = options.map((option, i) => {
  const chip = document.createElement("div");
  chip.className = "chip";
  chip.dataset.option = String(i);
  chip.textContent = LETTERS[i];
  return chip;
});

function place(option, value) {
  if (state.answer.places[option] === value) return;
  state.answer.places[option] = value;
  changed();
}

function inWords() {
  const given = [...new Set(state.answer.places.filter((p) => p !== null))].sort((a, b) => a - b);
  const parts = given.map((value) => {
    const here = state.answer.places.flatMap((p, i) => (p === value ? [LETTERS[i]] : []));
    const better = state.answer.places.filter((p) => p !== null && p < value).length;
    return ORDINALS[better + 1] + ": " + here.join(" and ") + (here.length > 1 ? " (tied)" : "");
  });
  return parts.join(", ");
}

export function show() {
  for (const [i, option] of options.entries()) {
    for (const radio of option.querySelectorAll("input[type=radio]")) {
      radio.checked = Number(radio.value) === state.answer.places[i];
    }
    option.querySelector(".sufficient").checked = Boolean(state.answer.sufficient && state.answer.sufficient[i]);
    const lane = lanes.find((l) => l.dataset.place === String(state.answer.places[i] ?? ""));
    if (chips[i].parentElement !== lane) lane.append(chips[i]);
  }
  byId("none").checked = Boolean(state.answer.sufficient && !state.answer.sufficient.includes(true));
  const words = inWords();
  if (byId("words").textContent !== words) byId("words").textContent = words;
  const missing = [];
  if (state.answer.places.includes(null)) missing.push("ranking");
  if (state.answer.sufficient === null) missing.push("sufficiency");
  byId("missing").textContent = missing.length ? "Still open: " + missing.join(", ") : "✓ Complete";
  const progress = byId("progress");
  progress.value = Number(progress.dataset.others) + (missing.length ? 0 : 1);
  progress.setAttribute("aria-label", progress.value + " of " + progress.max + " cases answered");
}

for (const [i, option] of options.entries()) {
  for (const radio of option.querySelectorAll("input[type=radio]")) {
    radio.addEventListener("change", () => place(i, Number(radio.value)));
  }
  const enough = option.querySelector(".sufficient");
  enough.addEventListener("change", () => {
    const before = state.answer.sufficient ?? Array(COUNT).fill(false);
    state.answer.sufficient = before.map((value, j) => (j === i ? enough.checked : value));
    changed();
  });
  option.addEventListener("focusin", () => look(i));
  option.querySelector(".view").addEventListener("click", () => look(i));
  option.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const digit = Number(event.key);
    if (digit >= 1 && digit <= COUNT && event.key.length === 1) place(i, digit);
    else if (event.key === "Backspace" || event.key === "Delete") place(i, null);
    else if (event.key === "s" || event.key === "S") enough.click();
    else return;
    event.preventDefault();
  });
}

byId("none").addEventListener("change", () => {
  state.answer.sufficient = byId("none").checked ? Array(COUNT).fill(false) : null;
  changed();
});
byId("remark").addEventListener("input", () => {
  state.answer.remark = byId("remark").value;
  changed(600);
});
byId("remark").addEventListener("change", flush);

// Pointer events rather than HTML drag and drop, which fingers cannot do.
let dragged = null;

function grab(event, i, handle) {
  if (event.button > 0) return;
  event.preventDefault();
  handle.setPointerCapture(event.pointerId);
  dragged = { i, id: event.pointerId, x: event.clientX, y: event.clientY, ghost: null };
  look(i);
}

function drag(event) {
  if (!dragged || event.pointerId !== dragged.id) return;
  const far = Math.hypot(event.clientX - dragged.x, event.clientY - dragged.y) > 4;
  if (!dragged.ghost && far) {
    dragged.ghost = chips[dragged.i].cloneNode(true);
    dragged.ghost.classList.add("ghost");
    byId("board").append(dragged.ghost);
    chips[dragged.i].classList.add("lifted");
  }
  if (!dragged.ghost) return;
  dragged.ghost.style.left = event.clientX + "px";
  dragged.ghost.style.top = event.clientY + "px";
  const lane = laneAt(event);
  for (const each of lanes) each.classList.toggle("target", each === lane);
}

function laneAt(event) {
  return document.elementsFromPoint(event.clientX, event.clientY).find((e) => e.matches(".lane"));
}

function drop(event) {
  if (!dragged || event.pointerId !== dragged.id) return;
  const { i, ghost } = dragged;
  dragged = null;
  for (const each of lanes) each.classList.remove("target");
  chips[i].classList.remove("lifted");
  if (!ghost) return;
  ghost.remove();
  const lane = event.type === "pointerup" ? laneAt(event) : null;
  if (lane) place(i, lane.dataset.place ? Number(lane.dataset.place) : null);
}

for (const [i, chip] of chips.entries()) {
  chip.addEventListener("pointerdown", (event) => grab(event, i, chip));
  chip.addEventListener("pointermove", drag);
  chip.addEventListener("pointerup", drop);
  chip.addEventListener("pointercancel", drop);
}
