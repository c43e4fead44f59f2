// What a run was given by a memory: the query, and each item with what an audit found it worth.
//
// What items say is hostile: it enters through text nodes alone and is never drawn as Markdown.

import { copy, button, h, plain, said } from "./dom.js";
import { number, plural } from "./format.js";
import { interval } from "./interval.js";
import { part } from "./toolcard.js";

const TONES = { helpful: "good", harmful: "bad", redundant: "warn" };
const SHORT = 300; // characters of an item that are shown at once

export function recall(call) {
  const { memory, items, more, step } = call.recalled;
  const what = step ? ["step ", said(String(step.number)), " of the tool ", said(step.tool), " of memory "] : items.length ? `${plural(items.length + more, "item")} of memory ` : "nothing of memory ";
  const head = h("p", { class: "recallhead" }, h("span", { class: "dim" }, what), said(memory), h("span", { class: "dim" }, " for "), said(call.action, { class: "query" }));
  const list = items.length > 0 && h("ol", { class: "recalled" }, items.map((item) => row(memory, item)));
  return [part("recall", head, step && h("p", { class: "query" }, said(step.did)), list, more > 0 && h("p", { class: "dim" }, `and ${plural(more, "more item")}`))];
}

function row(memory, { id, kind, text, cut, worth }) {
  const line = `clew memory show ${memory} ${id}`;
  const simple = /^[\w./-]+$/.test(memory) && /^[\w.-]+$/.test(id); // else it would have to be quoted for a shell
  const long = text.length > SHORT || cut;
  const body = said(long ? `${text.slice(0, SHORT)}…` : text, { class: "itemtext" });
  return h("li", {}, h("div", { class: "itemhead" }, h("span", { class: "tag" }, said(kind)), worth && h("span", { class: `tag ${TONES[worth.verdict] ?? ""}`, title: plain(worth.why) }, said(worth.verdict)),
    simple ? button(line, () => copy(line), { class: "quiet mono", title: "Copy the line that shows this item" }) : h("span", { class: "mono dim" }, said(id))),
  long ? h("details", {}, h("summary", {}, body), said(cut ? `${text}…` : text, { class: "itemtext" })) : body, worth && figures(worth));
}

/** The figures of an audit: with the item less without it. */
function figures({ why, audit, figures: by }) {
  const shown = Object.entries(by).map(([measure, { estimate, low, high, n }]) => h("span", { class: "figure" }, `${plain(measure)} `, h("b", { class: "num" }, signed(estimate)), interval(estimate, low, high, "", measure === "success" ? 1 : null),
    h("span", { class: "dim num" }, `[${signed(low)}, ${signed(high)}] n = ${n}`)));
  return h("p", { class: "worthline" }, h("span", { class: "dim" }, said(why)), shown, h("a", { href: `#/reports?q=${encodeURIComponent(audit)}` }, "audit"));
}

const signed = (value) => `${value > 0 ? "+" : ""}${number(value, 2)}`;
