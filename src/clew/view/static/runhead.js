// The head of a run: what it is, how it ended, and what can be done with it.

import { button, h, plain, said } from "./dom.js";
import { counted, money, number, seconds, tail, whole } from "./format.js";
import { dot, ending } from "./runrow.js";

/** Two lines from a summary row; `fork` is absent where this server does not fork; `near` leads to the runs before and after,
 * `files` to the files of a run that has them. */
export function runHead(s, prompt, fork, diff, group, near, files) {
  const key = (label, name) => [`${label} `, h("kbd", {}, name)];
  const fact = (label, value, title) => h("span", { class: "fact", title: plain(title ?? "") }, h("span", { class: "dim" }, `${label} `), value);
  const parent = s.parent ? fact("fork of", h("a", { class: "id", href: `#/run/${s.parent}` }, plain(s.parent))) : null;
  const actions = [near, fork && button(key("Fork", "f"), fork, { class: "primary" }), button(key("Diff", "d"), diff), s.group && button(key("Group", "g"), group), files && button(key("Files", "s"), files)];
  return [
    h("div", { class: "title" }, dot(s), h("h1", { class: "id" }, plain(s.run)), h("span", { class: "prompt" }, said(prompt || s.task)), h("span", { class: "actions" }, actions)),
    h("div", { class: "facts", tabindex: 0, role: "group", "aria-label": "Facts" },
      fact("return", h("b", {}, number(s.reward))), fact("stop", ending(s)), fact("steps", whole(s.steps)),
      fact("tokens", counted(s.tokens)), fact("cost", money(s.cost)), fact("time", seconds(s.seconds)), fact("task", said(s.task)),
      fact("world", said(s.world.split("(")[0]), s.world), fact("agent", said(tail(s.agent)), s.agent), fact("model", said(tail(s.model)), s.model),
      fact("seed", String(s.seed)), parent, (s.tags ?? []).map((tag) => h("span", { class: "tag" }, said(tag)))),
  ];
}
