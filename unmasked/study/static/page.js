// Pages of text: buttons that change something, and changes of cases that were never sent.
"use strict";

// Numbers of the cases of which this browser holds a change that it does not know to be saved.
function unsent(cases) {
  try {
    return cases.flatMap((id, i) => (localStorage.getItem("study-draft-" + id) ? [i + 1] : []));
  } catch {
    return [];
  }
}

const drafts = document.getElementById("drafts");
const left = drafts ? unsent(drafts.dataset.cases.split(" ")) : [];
if (left.length) {
  drafts.append("This browser holds changes that may not be saved yet. Open ");
  for (const [i, number] of left.entries()) {
    const link = document.createElement("a");
    link.href = drafts.dataset.root + "/case/" + number;
    link.textContent = "case " + number;
    drafts.append(i ? ", " : "", link);
  }
  drafts.append(", and they are saved.");
  drafts.hidden = false;
}

for (const button of document.querySelectorAll("[data-post]")) {
  button.addEventListener("click", async () => {
    const first = left.length ? "Changes of case " + left.join(", ") + " may not be saved yet. " : "";
    if (!window.confirm(first + button.dataset.confirm)) return;
    const reply = document.getElementById("reply");
    button.disabled = true;
    try {
      const response = await fetch(button.dataset.post, {
        method: "POST",
        headers: { "content-type": "application/json", "x-study-form": button.dataset.form },
        body: "{}",
      });
      const content = await response.json();
      if (!response.ok) reply.textContent = content.error;
      else if (content.next) window.location.assign(content.next);
      else {
        reply.textContent = "The new link, shown this once: ";
        const link = document.createElement("code");
        link.textContent = window.location.origin + content.link;
        reply.append(link);
      }
    } catch {
      reply.textContent = "The server cannot be reached; nothing was changed. Try again.";
    } finally {
      button.disabled = false;
    }
  });
}
