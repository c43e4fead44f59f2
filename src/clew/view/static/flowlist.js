// A list of things of any height: those near the viewport are in the document, the rest are sums of heights.

import { h, insert, put } from "./dom.js";
import { Pages } from "./pages.js";

/** Heights with their running sums, both in logarithmic time (a Fenwick tree). */
class Heights {
  constructor(count, guess) {
    this.of = new Float64Array(count).fill(guess);
    this.tree = new Float64Array(count + 1);
    for (let i = 1; i <= count; i++) {
      this.tree[i] += guess;
      const up = i + (i & -i);
      if (up <= count) this.tree[up] += this.tree[i];
    }
  }

  set(i, height) {
    const change = height - this.of[i];
    this.of[i] = height;
    for (let k = i + 1; k < this.tree.length; k += k & -k) this.tree[k] += change;
  }

  /** Where item i begins. */
  before(i) {
    let sum = 0;
    for (let k = i; k > 0; k -= k & -k) sum += this.tree[k];
    return sum;
  }

  /** The item at a height. */
  find(y) {
    let at = 0;
    let step = 1;
    while (step * 2 < this.tree.length) step *= 2;
    for (; step; step >>= 1)
      if (at + step < this.tree.length && this.tree[at + step] <= y) y -= this.tree[(at += step)];
    return Math.min(at, this.of.length - 1);
  }
}

export class FlowList {
  /** root: scrolls. load(start, stop) -> {rows, total}. draw(row, index) -> element. guess: pixels of an item not yet seen.
   * anchor(index): the item that draws it; another one where several items are drawn as one, side by side. */
  constructor(root, { load, draw, guess = 64, page = 100, failed, arrived, anchor = (i) => i }) {
    Object.assign(this, { root, draw, guess, told: arrived, anchor });
    this.drawn = new Map();
    this.spacer = h("div", { class: "flow" });
    put(root, this.spacer);
    this.pages = new Pages(page, load, (start, stop) => this.arrived(start, stop), failed);
    root.addEventListener("scroll", () => this.render(), { passive: true });
    this.sight = new ResizeObserver(() => this.render());
    this.sight.observe(root);
    this.width = root.clientWidth;
  }

  destroy() {
    this.sight.disconnect();
    this.pages.reset();
  }

  /** Begin: with item `at` in view. */
  async start(at = 0) {
    await this.pages.fetch(Math.floor(at / this.pages.size));
    if (this.heights) this.goto(at);
  }

  arrived(start, stop) {
    this.resize();
    for (let i = start; i < stop; i++) this.redraw(i);
    this.render();
    this.told?.(start, stop, this.pages.total);
  }

  resize() {
    const total = this.pages.total ?? 0;
    if (this.heights?.of.length === total) return;
    const old = this.heights;
    this.heights = new Heights(total, this.guess);
    if (old) for (let i = 0; i < Math.min(total, old.of.length); i++) if (old.of[i] !== this.guess) this.heights.set(i, old.of[i]);
  }

  /** Draw an item anew at the next render. */
  redraw(i) {
    if (this.anchor(i) !== i) this.redraw(this.anchor(i));
    const el = this.drawn.get(i);
    if (!el) return;
    this.sight.unobserve(el);
    el.remove();
    this.drawn.delete(i);
  }

  redrawAll() {
    for (const i of [...this.drawn.keys()]) this.redraw(i);
    this.render();
  }

  /** What lies near the viewport is put into the document and measured, and what is seen stays where it is. */
  render() {
    if (!this.heights?.of.length || !this.root.clientHeight) return;
    const anchor = this.heights.find(this.root.scrollTop);
    const within = this.root.scrollTop - this.heights.before(anchor);
    for (let round = 0; round < 4; round++) {
      const [first, last] = this.window();
      this.pages.want(first, last);
      for (const i of [...this.drawn.keys()]) if (i < first || i > last) this.redraw(i);
      for (let i = first; i <= last; i++) this.ensure(i);
      if (!this.measure()) break;
      this.spacer.style.height = `${this.heights.before(this.heights.of.length)}px`;
      const top = this.heights.before(anchor) + within;
      if (Math.abs(top - this.root.scrollTop) > 0.5) this.root.scrollTop = top;
    }
    this.spacer.style.height = `${this.heights.before(this.heights.of.length)}px`;
    for (const [i, el] of this.drawn) el.style.transform = `translateY(${this.heights.before(i)}px)`;
  }

  window() {
    const count = this.heights.of.length;
    const top = this.root.scrollTop;
    return [Math.max(0, this.heights.find(top - 300)), Math.min(count - 1, this.heights.find(top + this.root.clientHeight + 300))];
  }

  ensure(i) {
    if (this.drawn.has(i)) return;
    const row = this.pages.at(i);
    const alone = this.anchor(i) === i;
    const el = h("div", { class: "item", hidden: !alone, role: "listitem", data: { index: i } }, row ? alone && this.draw(row, i) : h("div", { class: "waiting" }));
    insert(this.spacer, this.drawn, i, el);
    this.drawn.set(i, el);
    this.sight.observe(el);
  }

  measure() {
    let changed = false;
    for (const [i, el] of this.drawn) {
      const height = el.offsetHeight;
      if (height !== this.heights.of[i]) {
        this.heights.set(i, height);
        changed = true;
      }
    }
    return changed;
  }

  /** Scroll so that an item begins a little below the top. */
  goto(i, margin = 40) {
    const at = this.anchor(Math.max(0, Math.min(i, this.heights.of.length - 1)));
    for (let round = 0; round < 3; round++) {
      this.root.scrollTop = this.heights.before(at) - margin;
      this.render();
    }
  }

  /** Scroll only as far as needed for an item to be seen. */
  show(item) {
    if (!this.heights?.of.length) return;
    const i = this.anchor(item);
    const top = this.heights.before(i);
    const bottom = top + this.heights.of[i];
    if (top < this.root.scrollTop || top > this.root.scrollTop + this.root.clientHeight) this.goto(i);
    else if (bottom > this.root.scrollTop + this.root.clientHeight && this.heights.of[i] < this.root.clientHeight)
      this.root.scrollTop = bottom - this.root.clientHeight + 8;
    this.render();
    this.showWithin(i, item);
  }

  /** Scroll to one of several that are drawn as one. */
  showWithin(i, item) {
    const [box, one] = [this.root.getBoundingClientRect(), this.drawn.get(i)?.querySelector(`.batch > [data-seq="${item}"]`)?.getBoundingClientRect()];
    if (!one || (one.top >= box.top && one.bottom <= box.bottom)) return;
    this.root.scrollTop += one.top < box.top || one.height > box.height ? one.top - box.top - 40 : one.bottom - box.bottom + 8;
    this.render();
  }

  get atEnd() {
    return this.root.scrollTop + this.root.clientHeight >= this.root.scrollHeight - 20;
  }
}
