// Pictures that do not load: an option whose selection is missing would look as if it had none.

import { byId } from "./parts.js";

const pictures = [...document.querySelectorAll("main img")];

export const loaded = (picture) => picture.complete && picture.naturalWidth > 0;

// Fetch again what could not be fetched, until it is there; call `changed` when something came.
export function watch(changed) {
  const failed = new Set();

  function fail(picture) {
    failed.add(picture);
    byId("unseen").hidden = false;
    window.setTimeout(() => picture.setAttribute("src", picture.getAttribute("src")), 2000);
  }

  for (const picture of pictures) {
    picture.addEventListener("error", () => fail(picture));
    picture.addEventListener("load", () => {
      failed.delete(picture);
      byId("unseen").hidden = failed.size === 0;
      changed();
    });
    if (picture.complete && !loaded(picture)) fail(picture); // before anybody listened
  }
}
