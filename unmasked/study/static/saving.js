// Saving every change.
//
// `state.answer` is what the page shows. `sending` is a change on its way: it is sent, unchanged and
// under the same name, until the server has said what became of it; only then a newer one follows.

import { byId, main } from "./parts.js";

export const state = { answer: JSON.parse(main.dataset.answer), shown: () => {} };
let base = Number(main.dataset.base);
let sending = null;
let dirty = false;
let refused = false;
let busy = false;
let failures = 0;
let timer = 0;
let leaving = null;
const DRAFT = "study-draft-" + main.dataset.case;

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const copy = (value) => JSON.parse(JSON.stringify(value));
const content = (value) => ({
  places: value.places,
  sufficient: value.sufficient,
  remark: value.remark,
});

function keepDraft() {
  try {
    if (dirty) localStorage.setItem(DRAFT, JSON.stringify({ answer: content(state.answer), base, sending }));
    else localStorage.removeItem(DRAFT);
  } catch { /* the browser keeps nothing; the page still holds it */ }
}

// Take up what was not saved when this page was last closed, unless the server has something newer;
// whether there is such a thing.
export function resume() {
  let draft = null;
  try {
    draft = JSON.parse(localStorage.getItem(DRAFT));
  } catch { /* none */ }
  if (!draft || !draft.answer || !Array.isArray(draft.answer.places)) return false;
  const landed = draft.sending && same(content(draft.sending), content(state.answer));
  const newer = draft.base !== base && !landed;
  if (newer || same(content(draft.answer), content(state.answer))) {
    localStorage.removeItem(DRAFT);
    return false;
  }
  state.answer = content(draft.answer);
  sending = landed ? null : draft.sending;
  return true;
}

function say(kind, text) {
  const saved = byId("saved");
  saved.dataset.state = kind;
  saved.textContent = text;
}

function complain(text) {
  const problem = byId("problem");
  problem.textContent = text;
  problem.hidden = !text;
}

export function changed(wait = 0) {
  dirty = true;
  keepDraft();
  if (!refused && failures === 0) say("saving", "Saving…");
  window.clearTimeout(timer);
  timer = window.setTimeout(flush, wait);
  state.shown();
}

function newName() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function flush() {
  window.clearTimeout(timer);
  if (busy || refused || (!dirty && !sending)) return;
  busy = true;
  if (!sending) sending = { ...copy(content(state.answer)), base, change: newName() };
  keepDraft();
  const stop = new AbortController();
  const limit = window.setTimeout(() => stop.abort(), 10000);
  let response = null;
  let reply = {};
  try {
    response = await fetch(main.dataset.save, {
      method: "PUT",
      headers: { "content-type": "application/json", "x-study-form": main.dataset.form },
      body: JSON.stringify(sending),
      keepalive: true,
      signal: stop.signal,
    });
    reply = await response.json();
  } catch {
    response = null;
  }
  window.clearTimeout(limit);
  busy = false;
  if (response && response.ok) {
    base = reply.record;
    dirty = !same(content(sending), content(state.answer));
    sending = null;
    failures = 0;
    complain("");
    keepDraft();
    if (dirty) flush();
    else {
      const time = new Date(reply.time).toLocaleTimeString();
      say("saved", "Saved " + time);
      if (leaving) window.location.assign(leaving);
    }
  } else if (response && [403, 409, 412, 413, 422].includes(response.status)) {
    refused = true;
    leaving = null;
    say("failed", "Not saved");
    complain(reply.error || "Nothing was saved. Reload the page.");
  } else {
    failures += 1;
    leaving = null;
    say("failed", "Not saved yet");
    complain(
      reply.error ||
        "Not saved yet: the server cannot be reached. Your answers stay on this page, which keeps trying.",
    );
    timer = window.setTimeout(flush, Math.min(500 * 2 ** failures, 5000));
  }
}

window.addEventListener("online", flush);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") flush();
});
window.addEventListener("pagehide", flush);

for (const link of document.querySelectorAll("header a, .steps a")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || refused) return;
    if (!dirty && !sending) return;
    event.preventDefault(); // go when the answer is on the disk
    leaving = link.href;
    flush();
  });
}
