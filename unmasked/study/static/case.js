// A case: looking at it, ranking its options, and saving every change.

import { draw, recall } from "./looking.js";
import { byId } from "./parts.js";
import { show } from "./ranking.js";
import { changed, resume, state } from "./saving.js";

const unsaved = resume();
byId("remark").value = state.answer.remark;
state.shown = show;
recall();
show();
draw();
if (unsaved) changed();
