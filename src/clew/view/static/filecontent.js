// What a file of a snapshot holds: a text line by line with its numbers, read piece by piece; anything else by its size.

import { get } from "./api.js";
import { button, failure, h, put, said } from "./dom.js";
import { moment, plural, size, whole } from "./format.js";
import { fileName } from "./patch.js";

const LONGEST = 20_000; // characters of a line that are drawn at once

/** Facts of a file in a line: its size, its permissions, when it was changed. */
export function factsOf(entry) {
  const one = [entry.kind === "l" ? "a link" : entry.kind === "d" ? "a folder" : `${size(entry.size)}`, entry.kind === "l" ? null : `mode ${entry.mode.toString(8)}`, entry.mtime && `changed ${moment(Math.round(entry.mtime)).replace(".000", "")}`];
  return one.filter(Boolean).join(", ");
}

/** Draw what a file holds into `root`; `ask` are the place and the path it is read by, `first` is what was read of it. */
export function drawContent(root, first, ask) {
  if (first.note || first.kind === "l") {
    put(root, h("p", { class: "filenote" }, first.kind === "l" && !first.note ? ["It leads to ", fileName(first.target ?? ""), h("span", { class: "dim" }, " (a link is never followed here)")] : why(first)));
    return;
  }
  if (first.text === "" && first.next === null) {
    put(root, h("p", { class: "filenote" }, "An empty file."));
    return;
  }
  new Content(root, first, ask);
}

function why(first) {
  if (first.note === "binary") return `A binary file of ${size(first.size)} (${plural(first.size, "byte")}): it is not shown.`;
  return said(`${first.note[0].toUpperCase()}${first.note.slice(1)}.`);
}

class Content {
  constructor(root, first, ask) {
    Object.assign(this, { ask, lines: 0, last: null, shown: 0 });
    this.box = h("div", { class: "code" });
    this.foot = h("div", { class: "patchrest" });
    put(root, this.box, this.foot);
    this.add(first);
  }

  /** A piece; the first line of it goes on with the last line of the one before where that was cut. */
  add({ text, next, size: bytes }) {
    const pieces = text.split("\n");
    const ended = pieces.at(-1) === "";
    if (ended) pieces.pop();
    if (this.last && pieces.length) this.last.append(...line(pieces.shift()));
    const rows = pieces.map((piece) => h("div", { class: "cl" }, h("i", { class: "no", data: { n: (this.lines += 1) } }), h("span", { class: "tx" }, line(piece))));
    this.box.append(...rows);
    this.last = ended ? null : (rows.at(-1)?.lastChild ?? this.last);
    const more = next !== null && button("Show more", () => this.more(next), { class: "more" });
    const said_ = next !== null ? `${size(next)} of ${size(bytes)} shown ` : ended ? "" : "no newline at the end";
    put(this.foot, said_ && h("span", { class: "dim" }, said_), more);
    this.foot.hidden = !said_;
  }

  async more(from) {
    put(this.foot, h("span", { class: "dim", role: "status" }, "Reading on …"));
    try {
      this.add(await get("files/content", { ...this.ask, from }));
    } catch (error) {
      put(this.foot, failure(error));
    }
  }
}

function line(text) {
  if (text.length <= LONGEST) return [said(text)];
  return [said(text.slice(0, LONGEST)), h("span", { class: "dim" }, ` and ${whole(text.length - LONGEST)} more characters of this line`)];
}
