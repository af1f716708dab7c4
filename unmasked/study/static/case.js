// A case: looking at it, ranking its options, and saving every change.

import { draw, recall } from "./looking.js";
import { byId } from "./parts.js";
import { watch } from "./pictures.js";
import { show } from "./ranking.js";
import { behind, changed, ready, resume, state } from "./saving.js";

if (behind()) window.location.reload();
else {
  const unsaved = resume();
  byId("remark").value = state.answer.remark;
  state.shown = show;
  recall();
  show();
  watch(draw);
  draw();
  ready();
  if (unsaved) changed();
}
