// The list that a run was opened from: which run comes before it there and which after.
//
// The list is remembered in the tab's session, so that it survives a reload and no other tab changes it.

import { get } from "./api.js";
import { button, h, put } from "./dom.js";
import { whole } from "./format.js";

const KEY = "came";
const AROUND = 500; // rows to either side in which a run is looked for again after the list changed

/** Remember where a run is opened from: a query and the run's place in it, or the ids of a shorter list. */
export function cameFrom({ q = "", index = 0, ids = null, back, title }) {
  sessionStorage.setItem(KEY, JSON.stringify({ q, index, ids: ids?.slice(0, 2000) ?? null, back, title }));
}

export class Near {
  constructor(run, changed) {
    Object.assign(this, { run, before: null, after: null, place: null, total: 0 });
    try {
      this.came = JSON.parse(sessionStorage.getItem(KEY));
    } catch {
      this.came = null;
    }
    if (this.came) this.find().then(changed, () => {});
  }

  async find() {
    const { q, ids, index } = this.came;
    if (ids) {
      this.set(ids, 0, ids.length);
      return;
    }
    for (const [from, limit] of [[Math.max(0, index - 1), 3], [Math.max(0, index - AROUND), 2 * AROUND]]) {
      const { rows, total } = await get("runs", { q, after: from || null, limit });
      if (this.set(rows.map((row) => row.run), from, total)) return;
    }
  }

  set(runs, from, total) {
    const at = runs.indexOf(this.run);
    if (at < 0) return false;
    Object.assign(this, { before: runs[at - 1] ?? null, after: runs[at + 1] ?? null, place: from + at, total });
    return at + 1 < runs.length || from + at + 1 === total;
  }

  /** Open the run before or after. */
  go(by) {
    const run = by < 0 ? this.before : this.after;
    if (!run) return false;
    if (!this.came.ids) cameFrom({ ...this.came, index: this.place + by });
    location.hash = `#/run/${encodeURIComponent(run)}`;
    return true;
  }

  draw(root) {
    root.hidden = this.place === null || this.total < 2;
    if (root.hidden) return;
    const step = (label, key, by, there) => button(label, () => this.go(by), { "aria-label": `${by < 0 ? "Previous" : "Next"} run`, title: `${by < 0 ? "Previous" : "Next"} run of the list (${key})`, disabled: !there });
    put(root, step("‹", "K", -1, this.before), h("a", { href: this.came.back, title: this.came.title || "The list it was opened from" }, `${whole(this.place + 1)} of ${whole(this.total)}`), step("›", "J", 1, this.after));
  }
}
