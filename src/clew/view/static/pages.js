// Long lists by pages: what is near the viewport is asked for, the latest wish first, two requests at a time.

export class Pages {
  /** `load(start, stop, signal)` gives {rows, total}; `signal` ends what nobody waits for any more. `arrived(start, stop)` is called when rows can be drawn. */
  constructor(size, load, arrived, failed) {
    Object.assign(this, { size, load, arrived, failed });
    this.reset();
  }

  reset(total = null) {
    this.left?.abort();
    this.left = new AbortController();
    this.kept = new Map();
    this.asked = new Set();
    this.wish = [];
    this.total = total;
    this.age = (this.age ?? 0) + 1;
  }

  at(index) {
    return this.kept.get(Math.floor(index / this.size))?.[index % this.size];
  }

  /** Everything that has been read, with its index. */
  *each() {
    for (const [page, rows] of this.kept) for (const [i, row] of rows.entries()) yield [page * this.size + i, row];
  }

  /** Wish for rows first..last; wishes that were not yet asked for and are no longer near are forgotten. */
  want(first, last) {
    this.wish = [];
    for (let page = Math.floor(first / this.size); page <= Math.floor(last / this.size); page++)
      if (!this.kept.has(page) && !this.asked.has(page)) this.wish.push(page);
    this.next();
  }

  next() {
    while (this.wish.length && this.asked.size < 2) this.fetch(this.wish.shift());
  }

  /** Read one page, again if it was read before. */
  async fetch(page) {
    const age = this.age;
    this.asked.add(page);
    try {
      const { rows, total } = await this.load(page * this.size, (page + 1) * this.size, this.left.signal);
      if (age !== this.age) return;
      this.kept.set(page, rows);
      this.total = total;
      this.asked.delete(page);
      this.arrived(page * this.size, page * this.size + rows.length);
    } catch (error) {
      if (age !== this.age) return;
      this.asked.delete(page);
      this.failed(error);
      return;
    }
    this.next();
  }

  /** Read the last page and what follows it: more has been written. */
  async grow() {
    const last = Math.max(0, Math.floor(((this.total ?? 1) - 1) / this.size));
    if (!this.asked.has(last)) await this.fetch(last);
  }
}
