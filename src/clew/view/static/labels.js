// What people say of runs and Calls, drawn small: in lists, beside a Call, and in the row that labels are given in.

import { h, plain, said } from "./dom.js";

/** Words such as "good", "4★", "2 inside" as tags; the first few, and how many more there are. */
export function labelTags(words, few = 4) {
  const shown = (words ?? []).slice(0, few).map((word) => h("span", { class: "tag label" }, said(word)));
  const rest = (words?.length ?? 0) - shown.length;
  return rest > 0 ? [...shown, h("span", { class: "tag label" }, `+${rest}`)] : shown;
}

/** Stars and verdict of a label in a word or two. */
export function inShort(label) {
  return [label.verdict, label.stars && `${label.stars}★`].filter(Boolean).join(" ") || "note";
}

/** One label, whole: where it stands, who says it, what. The note is somebody's text. */
export function drawLabel(label, href, short) {
  return h("li", {}, h("a", { class: "id", href, title: plain(label.place) }, short), " ", h("span", { class: "tag label" }, said(inShort(label))), " ",
    h("span", { class: "dim" }, said(label.by)), label.note && h("span", { class: "labelnote" }, " ", said(label.note)));
}

/** A letter for each verdict: its first that is free. */
export function letters(verdicts, taken = "nxtjkhl") {
  const used = new Set(taken);
  const found = new Map();
  for (const verdict of verdicts) {
    const letter = [...verdict].find((one) => /[a-z]/.test(one) && !used.has(one));
    if (letter) used.add(letter);
    found.set(verdict, letter ?? "");
  }
  return found;
}
