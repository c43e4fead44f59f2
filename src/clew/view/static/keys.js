// Keys: each view says what it answers to; fields keep what is typed into them.

import { h, put, button } from "./dom.js";

const EVERYWHERE = {
  "/": ["Search", () => focusSearch()],
  "?": ["This help", (view) => help(view)],
  r: ["Runs", () => go("#/runs")],
  t: ["Training", () => go("#/training")],
  p: ["Reports", () => go("#/reports")],
  b: ["Back", () => history.back()],
};

function go(hash) {
  location.hash = hash;
}

function focusSearch() {
  const field = document.querySelector("input[type=search]");
  field?.focus();
  field?.setSelectionRange(field.value.length, field.value.length);
}

const typing = (el) => el.matches?.("input:not([type=checkbox], [type=radio]), textarea, select");

/** Run what a key means in the view that is shown. */
export function onKey(event, current) {
  const view = current();
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const open = document.querySelector("dialog[open]");
  if (open) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const pressing = event.target.matches?.("button, a, summary, [role=button], input");
  if (pressing && (event.key === "Enter" || event.key === " ")) return;
  const keys = { ...EVERYWHERE, ...view?.keys };
  const entry = keys[event.key] ?? keys[ALIAS[event.key]];
  if (!entry) return;
  event.preventDefault();
  entry[1](view);
}

const ALIAS = { ArrowDown: "j", ArrowUp: "k", ArrowLeft: "h", ArrowRight: "l", Enter: "enter", Escape: "esc", " ": "space" };

/** What the keys do here. */
export function help(view) {
  const rows = ([key, [what]]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what));
  const table = (keys) => h("table", {}, h("tbody", {}, Object.entries(keys).map(rows)));
  const dialog = h("dialog", { class: "help", "aria-label": "Keys" });
  const close = () => dialog.close();
  put(
    dialog,
    h("header", {}, h("h2", {}, "Keys"), button("Close", close, { class: "quiet" })),
    h("div", { class: "columns" }, h("section", {}, h("h3", {}, "Here"), table(view?.keys ?? {})),
      h("section", {}, h("h3", {}, "Everywhere"), table(EVERYWHERE))),
  );
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("keydown", (event) => event.key === "?" && close());
  document.body.append(dialog);
  dialog.showModal();
}
