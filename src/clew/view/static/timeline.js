// Latency and cost along a run: a bar for each Call, up for seconds and down for US dollars; a bar leads to its Call.

import { h, put, svg } from "./dom.js";
import { money, seconds } from "./format.js";

const [UP, DOWN] = [24, 12]; // pixels of the two kinds of bars

export class Timeline {
  /** jump(seq) goes to a Call. */
  constructor(root, jump) {
    Object.assign(this, { root, jump, rows: [], seq: null });
    this.root.hidden = true;
    this.root.tabIndex = 0;
    this.root.setAttribute("role", "slider");
    this.root.setAttribute("aria-label", "Latency and cost of each Call");
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("click", (event) => this.pick(event));
    this.root.addEventListener("pointermove", (event) => (this.root.title = this.said(this.near(event))));
    this.sight = new ResizeObserver(() => this.draw());
    this.sight.observe(root);
  }

  destroy() {
    this.sight.disconnect();
  }

  show(rows) {
    this.rows = rows;
    this.root.hidden = !rows.some((row) => row.seconds > 0 || row.cost > 0);
    this.draw();
  }

  x(seq) {
    const total = this.rows.length;
    return total > 1 ? (seq / (total - 1)) * (this.width - 4) + 2 : 2;
  }

  draw() {
    const width = this.root.clientWidth;
    if (!width || this.root.hidden) return;
    this.width = width;
    const bins = this.binned();
    const [slow, dear] = ["seconds", "cost"].map((name) => Math.max(...bins.map((bin) => bin[name]), 0));
    const thick = Math.max(1, Math.min(8, ((width - 4) / Math.max(1, this.rows.length)) * 0.8));
    const el = svg("svg", { width, height: UP + DOWN + 1, "aria-hidden": "true" });
    const bar = (x, y, height, kind) => height > 0 && el.append(svg("rect", { x: x - thick / 2, y, width: thick, height: Math.max(1, height), class: kind }));
    for (const bin of bins) {
      bar(bin.x, UP - (bin.seconds / (slow || 1)) * UP, (bin.seconds / (slow || 1)) * UP, bin.failed ? "failed" : bin.kind);
      bar(bin.x, UP + 1, (bin.cost / (dear || 1)) * DOWN, "cost");
      if (bin.failed) el.append(svg("rect", { x: bin.x - 1.5, y: 0, width: 3, height: 3, class: "failed" }));
    }
    el.append(svg("line", { x1: 0, x2: width, y1: UP + 0.5, y2: UP + 0.5, class: "zero" }));
    this.cursor = svg("rect", { class: "cursor", y: 0, width: 2, height: UP + DOWN + 1, visibility: "hidden" });
    el.append(this.cursor);
    put(this.root, el, h("span", { class: "range", "aria-hidden": "true" }, h("span", { title: "the slowest Call" }, slow ? seconds(slow) : ""), h("span", { title: "the dearest Call" }, dear ? money(dear) : "")));
    this.mark(this.seq);
  }

  /** At most one bar a pixel: of several Calls the slowest and the dearest, and whether one failed. */
  binned() {
    const bins = new Map();
    for (const row of this.rows) {
      const x = Math.round(this.x(row.seq));
      const bin = bins.get(x) ?? { x, seconds: 0, cost: 0, kind: "act", failed: false };
      if (row.seconds >= bin.seconds) Object.assign(bin, { seconds: row.seconds, kind: row.kind === "ask" ? "ask" : "act" });
      bin.cost = Math.max(bin.cost, row.cost);
      bin.failed ||= row.failed;
      bins.set(x, bin);
    }
    return [...bins.values()];
  }

  mark(seq) {
    this.seq = seq;
    this.cursor?.setAttribute("x", this.x(seq ?? 0) - 1);
    this.cursor?.setAttribute("visibility", seq === null ? "hidden" : "visible");
    const at = this.rows[seq ?? 0];
    for (const [name, value] of [["min", 0], ["max", Math.max(0, this.rows.length - 1)], ["now", seq ?? 0]]) this.root.setAttribute(`aria-value${name}`, value);
    this.root.setAttribute("aria-valuetext", this.said(at));
  }

  said(row) {
    if (!row) return "no Call";
    const tool = row.kind === "act" && row.tools.length ? row.tools[0] : row.kind === "ask" ? "reply" : row.kind;
    return [`Call ${row.seq}, ${tool.replaceAll(/[^\x20-\x7e]/g, "?")}`, seconds(row.seconds), row.cost ? money(row.cost) : "", row.failed ? "failed" : ""].filter(Boolean).join(", ");
  }

  near(event) {
    const x = event.clientX - this.root.getBoundingClientRect().left;
    return this.rows[Math.max(0, Math.min(this.rows.length - 1, Math.round(((x - 2) / Math.max(1, this.width - 4)) * (this.rows.length - 1))))];
  }

  pick(event) {
    const row = this.near(event);
    if (row) this.jump(row.seq);
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (!by || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.jump(Math.max(0, Math.min(this.rows.length - 1, (this.seq ?? 0) + by)));
  }
}
