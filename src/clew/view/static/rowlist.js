// A list of rows of one height: only those near the viewport are in the document, whatever their number.

import { failure, h, insert, put } from "./dom.js";
import { Pages } from "./pages.js";

export class RowList {
  /**
   * root: scrolls. height(): of a row in pixels. load(start, stop) -> {rows, total}. draw(row, index) -> element.
   * open(row), selected(row, index), empty() -> element are called as they say.
   * opens(row): whether one click is enough to open it, where a row has the room of a list on a desk.
   */
  constructor(root, { height, load, draw, open, selected, empty, label, page = 100, arrived, opens }) {
    Object.assign(this, { root, height, draw, open, selected, empty, told: arrived, opens });
    this.index = -1;
    this.drawn = new Map();
    this.spacer = h("div", { class: "rows", role: "rowgroup" });
    this.pages = new Pages(page, load, () => this.refresh(), (error) => {
      root.removeAttribute("aria-busy");
      this.fail(error);
    });
    root.setAttribute("aria-busy", "true"); // until something is to be seen
    root.tabIndex = 0;
    root.setAttribute("role", "grid"); // not a listbox: its options could hold no links
    root.setAttribute("aria-label", label);
    put(root, this.spacer);
    root.addEventListener("scroll", () => this.render(), { passive: true });
    this.sight = new ResizeObserver(() => this.refresh());
    this.sight.observe(root);
    this.pages.fetch(0);
  }

  destroy() {
    this.sight.disconnect();
    this.pages.reset();
  }

  fail(error) {
    put(this.root, failure(error));
  }

  /** Read everything afresh, the visible page first; what is shown stays until it is replaced. */
  async reload() {
    const page = Math.floor(this.root.scrollTop / this.height() / this.pages.size);
    const old = this.pages.kept;
    this.pages.reset(this.pages.total);
    this.pages.kept = old;
    if (!this.spacer.isConnected) put(this.root, this.spacer);
    const kept = this.pages.age;
    await this.pages.fetch(page);
    if (kept === this.pages.age && this.pages.kept.has(page)) {
      this.pages.kept = new Map([[page, this.pages.kept.get(page)]]);
      this.refresh();
    }
  }

  refresh() {
    for (const el of this.drawn.values()) el.remove();
    this.drawn.clear();
    this.render();
    this.told?.(this.pages.total);
  }

  render() {
    const total = this.pages.total;
    if (total === null || !this.root.clientHeight) return;
    this.root.removeAttribute("aria-busy");
    const size = this.height();
    this.spacer.style.height = `${total * size}px`;
    this.root.setAttribute("aria-rowcount", total);
    if (total === 0 && this.empty) {
      put(this.spacer, this.empty());
      this.spacer.style.height = "auto";
      return;
    }
    if (this.spacer.firstElementChild?.classList.contains("notice")) put(this.spacer);
    const first = Math.max(0, Math.floor(this.root.scrollTop / size) - 6);
    const last = Math.min(total - 1, Math.ceil((this.root.scrollTop + this.root.clientHeight) / size) + 6);
    this.pages.want(first, last);
    for (const [i, el] of this.drawn) if (i < first || i > last) this.drop(i, el);
    for (let i = first; i <= last; i++) this.place(i, size);
    this.root.setAttribute("aria-activedescendant", this.drawn.has(this.index) ? this.drawn.get(this.index).id : "");
  }

  drop(i, el) {
    el.remove();
    this.drawn.delete(i);
  }

  place(i, size) {
    const row = this.pages.at(i);
    const before = this.drawn.get(i);
    if (before && (!row || !before.classList.contains("waiting"))) return;
    before?.remove();
    const el = row ? this.draw(row, i) : h("div", { class: "row waiting" });
    el.id ||= `row-${i}`;
    el.setAttribute("role", "row");
    el.setAttribute("aria-rowindex", i + 1);
    for (const cell of el.children) if (!cell.hasAttribute("role")) cell.setAttribute("role", "gridcell");
    el.setAttribute("aria-selected", i === this.index);
    el.style.transform = `translateY(${i * size}px)`;
    if (row) el.addEventListener("click", (event) => this.click(event, i));
    insert(this.spacer, this.drawn, i, el);
    this.drawn.set(i, el);
  }

  click(event, i) {
    if (event.target.closest("a, button, input")) return;
    const again = this.index === i;
    this.select(i);
    if (again || this.opens?.(this.current) || matchMedia("(max-width: 700px)").matches) this.enter();
  }

  select(i, show = true) {
    const total = this.pages.total ?? 0;
    if (!total) return;
    this.drawn.get(this.index)?.setAttribute("aria-selected", false);
    this.index = Math.max(0, Math.min(total - 1, i));
    if (show) this.show(this.index);
    this.drawn.get(this.index)?.setAttribute("aria-selected", true);
    this.render();
    this.selected?.(this.pages.at(this.index), this.index);
  }

  move(by) {
    const near = Math.ceil(this.root.scrollTop / this.height());
    this.select(this.index < 0 ? near : this.index + by);
  }

  enter() {
    const row = this.pages.at(this.index);
    if (row) this.open?.(row, this.index);
  }

  get current() {
    return this.pages.at(this.index);
  }

  show(i) {
    const size = this.height();
    const top = i * size;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + size > this.root.scrollTop + this.root.clientHeight)
      this.root.scrollTop = top + size - this.root.clientHeight;
    this.render();
  }
}
