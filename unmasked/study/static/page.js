// Buttons that change something on the overview and on the owner's page.
"use strict";
for (const button of document.querySelectorAll("[data-post]")) {
  button.addEventListener("click", async () => {
    if (!window.confirm(button.dataset.confirm)) return;
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
