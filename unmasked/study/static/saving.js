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
const LAST = "study-last"; // what was saved last, in this tab: [case, version]

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

// Whether the server made this page before it had what this tab has saved since: loaded anew while
// an answer was on its way, it may be behind.
export function behind() {
  try {
    const [id, version] = JSON.parse(sessionStorage.getItem(LAST)) || [];
    sessionStorage.removeItem(LAST); // asked once: a server that was set back is no endless matter
    return id === main.dataset.case && version > base;
  } catch {
    return false;
  }
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
  const newer = base > draft.base && !landed;
  const known = base >= draft.base && same(content(draft.answer), content(state.answer));
  if (newer || known) {
    localStorage.removeItem(DRAFT);
    if (!known) complain("A change that was not saved is gone: this case was changed elsewhere since.");
    return false;
  }
  base = Math.max(base, draft.base);
  state.answer = content(draft.answer);
  sending = landed ? null : draft.sending;
  return true;
}

function say(kind, text) {
  const saved = byId("saved");
  saved.dataset.state = kind;
  saved.textContent = text;
}

// The page says that it saves when it can: not before all of this has loaded.
export function ready() {
  say(base ? "saved" : "new", base ? "All saved" : "Nothing answered yet");
  byId("panel").inert = false;
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
    base = reply.version;
    dirty = !same(content(sending), content(state.answer));
    sending = null;
    failures = 0;
    complain("");
    keepDraft();
    try {
      sessionStorage.setItem(LAST, JSON.stringify([main.dataset.case, base]));
    } catch { /* nothing is kept */ }
    if (dirty) flush();
    else {
      const time = new Date(reply.time).toLocaleTimeString();
      say("saved", "Saved " + time);
      if (leaving) window.location.assign(leaving);
    }
  } else if (response && [403, 409, 412, 413, 422].includes(response.status)) {
    refused = true;
    leaving = null;
    if (response.status === 409) localStorage.removeItem(DRAFT); // it will never be saved
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
window.addEventListener("pageshow", (event) => {
  if (event.persisted) window.location.reload(); // the browser kept the page: the server knows more
});

for (const link of document.querySelectorAll("header a, .steps a")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || refused) return;
    if (!dirty && !sending) return;
    event.preventDefault(); // go when the answer is on the disk
    leaving = link.href;
    flush();
  });
}
