// The line below the head that says what is waited for, how far it is, and lets a search be stopped.

import { listen } from "./api.js";
import { button, h, put } from "./dom.js";
import { whole } from "./format.js";

const WORK = { list: "Indexing the store", words: "Searching the messages", calls: "Searching the run" };
const LINGER = 400; // milliseconds: one request for the same often follows another

/** Show it in `root`: one line for each kind of work. */
export function showWaiting(root) {
  const asked = new Map(); // request -> what it waits for
  const lines = new Map(); // kind of work -> its line
  let timer = 0;
  const draw = () => {
    const kinds = new Map([...asked.values()].map((one) => [one.wait, one]));
    for (const [kind, line] of lines) if (!kinds.has(kind)) lines.delete(kind), line.el.remove();
    for (const [kind, one] of kinds) {
      if (!lines.has(kind)) lines.set(kind, new Line(kind, () => asked.forEach((each) => each.wait === kind && each.stop())));
      const line = lines.get(kind);
      line.show(one);
      if (!line.el.isConnected) root.append(line.el); // once: a button that moves is not pressed
    }
    root.hidden = !lines.size;
  };
  listen("wait", ({ asked: key, ...one }) => {
    if (!one.wait && !asked.delete(key)) return;
    clearTimeout(timer);
    if (one.wait) draw(asked.set(key, one));
    else timer = setTimeout(draw, LINGER);
  });
}

class Line {
  constructor(kind, stop) {
    const label = WORK[kind] ?? "Working";
    this.far = h("span", { class: "dim" });
    this.bar = h("progress", { "aria-label": label });
    this.el = h("div", { class: "waitline" }, h("strong", { role: "status" }, label), this.bar, this.far, kind !== "list" && button("Stop", stop));
    this.unit = kind === "calls" ? "Calls" : "runs";
  }

  show({ done, total }) {
    Object.assign(this.bar, { max: Math.max(total, 1), value: done });
    put(this.far, `${whole(done)} of ${whole(total)} ${this.unit}`);
  }
}
