// A run in one glance: the chosen value of every Call along it, where it turned, where one is.

import { get, name } from "./api.js";
import { h, put, svg } from "./dom.js";
import { number } from "./format.js";
import { colour } from "./tokens.js";

const HEIGHT = 34;

export class Strip {
  /** jump(seq) goes to a Call. */
  constructor(root, run, jump) {
    Object.assign(this, { root, run, jump, seqs: [], values: [] });
    this.sight = new ResizeObserver(() => this.draw());
    this.sight.observe(root);
  }

  destroy() {
    this.sight.disconnect();
  }

  async show(shade, total) {
    this.shade = shade;
    this.total = total;
    const value = shade?.name ?? "reward";
    const { seqs, values } = await get(`run/${name(this.run)}/marks`, { value });
    if (value !== (this.shade?.name ?? "reward")) return;
    Object.assign(this, { seqs, values });
    this.root.hidden = !seqs.length;
    this.draw();
  }

  /** The Call with the lowest value. */
  get lowest() {
    let at = -1;
    for (let i = 0; i < this.values.length; i++)
      if (this.values[i] !== null && (at < 0 || this.values[i] < this.values[at])) at = i;
    return at < 0 ? null : this.seqs[at];
  }

  mark(seq) {
    this.seq = seq;
    this.cursor?.setAttribute("x", this.x(seq) - 1);
    this.cursor?.setAttribute("visibility", seq === null ? "hidden" : "visible");
  }

  x(seq) {
    return this.total > 1 ? (seq / (this.total - 1)) * (this.width - 4) + 2 : 2;
  }

  draw() {
    const width = this.root.clientWidth;
    if (!width || !this.seqs.length) {
      put(this.root);
      return;
    }
    this.width = width;
    const bars = this.binned(width);
    const known = bars.map((bar) => bar.value);
    const low = Math.min(0, ...known);
    const high = Math.max(0, ...known);
    const y = (value) => 2 + ((high - value) / (high - low || 1)) * (HEIGHT - 4);
    const zero = y(0);
    const el = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": `${this.shade?.name ?? "reward"} along the run, from ${number(low)} to ${number(high)}` });
    const thick = Math.max(1, Math.min(8, (width - 4) / Math.max(1, this.total) * 1.6));
    for (const { seq, value } of bars) {
      const place = this.shade?.place(value) ?? Math.sign(value);
      const bar = svg("rect", { x: this.x(seq) - thick / 2, width: thick, y: Math.min(zero, y(value)), height: Math.max(1, Math.abs(zero - y(value))) });
      bar.style.fill = `color-mix(in oklab, ${colour(place < 0 ? Math.min(place, -0.3) : Math.max(place, 0.3))}, var(--${place < 0 ? "low" : "high"}) 40%)`;
      el.append(bar);
    }
    el.append(svg("line", { x1: 0, x2: width, y1: zero, y2: zero, class: "zero" }));
    this.cursor = svg("rect", { class: "cursor", y: 0, width: 2, height: HEIGHT });
    el.append(this.cursor);
    el.addEventListener("click", (event) => {
      const seq = (event.offsetX / width) * (this.total - 1);
      const near = this.seqs.reduce((best, one) => (Math.abs(one - seq) < Math.abs(best - seq) ? one : best), this.seqs[0]);
      this.jump(near);
    });
    put(this.root, el, h("span", { class: "range" }, h("span", {}, number(high, 2)), h("span", {}, number(low, 2))));
    this.mark(this.seq ?? null);
  }

  /** At most one bar a pixel: of several values the one farthest from 0. */
  binned(width) {
    const best = new Map();
    this.seqs.forEach((seq, i) => {
      const value = this.values[i];
      if (value === null) return;
      const bin = Math.round(this.x(seq));
      if (!best.has(bin) || Math.abs(value) > Math.abs(best.get(bin).value)) best.set(bin, { seq, value });
    });
    return [...best.values()];
  }
}
