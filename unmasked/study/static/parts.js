// What the parts of a case's page share.

export const main = document.querySelector("main");
export const byId = (id) => document.getElementById(id);
export const COUNT = Number(main.dataset.options);
export const LETTERS = "ABCDEFGH";
