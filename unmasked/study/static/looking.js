// Looking at a case: zoom, brightness and contrast, which option's selection lies over the image.

import { byId, LETTERS, main } from "./parts.js";
import { loaded } from "./pictures.js";

const options = [...document.querySelectorAll(".option")];
const panes = document.querySelector(".panes");
const view = { option: 0, zoom: 1, x: 0, y: 0 };
const size = { width: Number(main.dataset.width), height: Number(main.dataset.height) };

export function look(i) {
  view.option = i;
  draw();
}

export function draw() {
  const overlay = byId("overlay").checked;
  const only = byId("only").checked;
  const wide = window.matchMedia("(min-width: 700px)").matches;
  const beside = byId("beside").checked && wide;
  byId("besides").hidden = !wide;
  byId("plain").hidden = !beside;
  panes.classList.toggle("two", beside);
  for (const [i, option] of options.entries()) {
    option.classList.toggle("viewed", i === view.option);
    option.querySelector(".view").setAttribute("aria-pressed", String(i === view.option));
  }
  for (const layer of document.querySelectorAll("#over .layer")) {
    const mine = Number(layer.dataset.option) === view.option;
    const hides = layer.classList.contains("hide");
    layer.hidden = !mine || !overlay || hides !== only;
    layer.style.opacity = String(Number(byId("opacity").value) / 100);
  }
  const layers = [...document.querySelectorAll("#over .layer:not([hidden])")];
  const state = !overlay ? ": selection off" : layers.every(loaded) ? "" : ": not loaded yet";
  byId("caption").textContent = "Option " + LETTERS[view.option] + state;
  const light = Number(byId("brightness").value) / 100;
  const contrast = Number(byId("contrast").value) / 100;
  for (const layers of document.querySelectorAll(".layers")) {
    const pane = layers.parentElement.getBoundingClientRect();
    const fit = Math.min(pane.width / size.width, pane.height / size.height) || 1;
    const [width, height] = [size.width * fit, size.height * fit];
    layers.style.width = width + "px";
    layers.style.height = height + "px";
    const left = (pane.width - width * view.zoom) / 2 + view.x * width;
    const top = (pane.height - height * view.zoom) / 2 + view.y * height;
    layers.style.transform = `translate(${left}px, ${top}px) scale(${view.zoom})`;
    layers.querySelector("img").style.filter = `brightness(${light}) contrast(${contrast})`;
  }
  byId("zoom").textContent = Math.round(view.zoom * 100) + "%";
}

// Zoom about a point of a pane, (0, 0) its middle, in widths and heights of the fitted image.
function zoomTo(zoom, x = 0, y = 0) {
  const next = Math.min(Math.max(zoom, 1), 12);
  const ratio = next / view.zoom;
  view.x = x - (x - view.x) * ratio;
  view.y = y - (y - view.y) * ratio;
  view.zoom = next;
  move(0, 0);
}

function move(x, y) {
  const room = (view.zoom - 1) / 2 + 0.25; // a quarter of the image may leave the pane
  const least = view.zoom === 1 ? 0 : room;
  view.x = Math.min(Math.max(view.x + x, -least), least);
  view.y = Math.min(Math.max(view.y + y, -least), least);
  draw();
}

function fitted(pane) {
  const box = pane.getBoundingClientRect();
  const fit = Math.min(box.width / size.width, box.height / size.height) || 1;
  return { box, width: size.width * fit, height: size.height * fit };
}

function pointOf(event, pane) {
  const { box, width, height } = fitted(pane);
  const x = (event.clientX - box.left - box.width / 2) / width;
  const y = (event.clientY - box.top - box.height / 2) / height;
  return { x, y };
}

for (const pane of document.querySelectorAll(".pane")) {
  pane.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const { x, y } = pointOf(event, pane);
      zoomTo(view.zoom * Math.exp(-event.deltaY / 400), x, y);
    },
    { passive: false },
  );
  const fingers = new Map();
  pane.addEventListener("pointerdown", (event) => {
    pane.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event);
  });
  pane.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const { width, height } = fitted(pane);
    if (fingers.size === 1) {
      move((event.clientX - before.clientX) / width, (event.clientY - before.clientY) / height);
    } else {
      const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
      const apart = (e) => Math.hypot(e.clientX - other.clientX, e.clientY - other.clientY);
      const { x, y } = pointOf(other, pane);
      zoomTo((view.zoom * apart(event)) / Math.max(apart(before), 1), x, y);
    }
    fingers.set(event.pointerId, event);
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    pane.addEventListener(kind, (event) => fingers.delete(event.pointerId));
  }
}

panes.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = 0.06 * view.zoom;
  const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
  if (moves[event.key]) move(...moves[event.key]);
  else if (event.key === "+" || event.key === "=") zoomTo(view.zoom * 1.25);
  else if (event.key === "-" || event.key === "−") zoomTo(view.zoom / 1.25);
  else if (event.key === "0") zoomTo(1);
  else return;
  event.preventDefault();
});

byId("in").addEventListener("click", () => zoomTo(view.zoom * 1.25));
byId("out").addEventListener("click", () => zoomTo(view.zoom / 1.25));
byId("reset").addEventListener("click", () => {
  byId("brightness").value = byId("contrast").value = byId("opacity").value = "100";
  remember();
  zoomTo(1);
});

// How one likes to look stays from case to case; brightness and contrast are the case's own.
const KEPT = ["overlay", "only", "beside", "opacity"];

function remember() {
  const kept = KEPT.map((id) => (id === "opacity" ? byId(id).value : byId(id).checked));
  try {
    sessionStorage.setItem("study-view", JSON.stringify(kept));
  } catch { /* nothing is kept */ }
}

export function recall() {
  try {
    const kept = JSON.parse(sessionStorage.getItem("study-view")) || [];
    for (const [i, value] of kept.entries()) {
      byId(KEPT[i])[KEPT[i] === "opacity" ? "value" : "checked"] = value;
    }
  } catch { /* defaults */ }
}

for (const id of [...KEPT, "brightness", "contrast"]) {
  byId(id).addEventListener("input", () => {
    remember();
    draw();
  });
}
new ResizeObserver(draw).observe(panes);
