// A run in outline: every Call in a line, and lists of its replies, of the calls of each tool, of errors and of forks.

import { get, name } from "./api.js";
import { button, h, later, plain, put, said } from "./dom.js";
import { seconds, whole } from "./format.js";
import { RowList } from "./rowlist.js";

const TOOLS = 24; // tools that have a list of their own, the most used first

/** What the outline of a run says, read in pieces; `grow` reads what was added. */
export class Facts {
  constructor(run) {
    Object.assign(this, { run, rows: [] });
  }

  async grow(arrived) {
    if (this.reading) return;
    this.reading = true;
    try {
      // the last Call of a run that goes on may have been an intent
      for (let start = Math.max(0, this.rows.length - 8); start !== null; ) {
        const { next, ...columns } = await get(`run/${name(this.run)}/outline`, { start });
        const read = (columns.seq ?? []).map((seq, i) => ({ seq, kind: columns.kind[i], label: columns.label[i], tools: columns.tools[i], failed: columns.failed[i], seconds: columns.seconds[i], cost: columns.cost[i], started: columns.started[i] }));
        this.rows.length = Math.min(this.rows.length, start);
        for (const row of read) this.rows.push(row);
        start = next;
      }
    } finally {
      this.reading = false;
    }
    arrived();
  }

  /** The next Call after `seq` in a direction that failed; null where none did. */
  error(seq, by) {
    const bad = this.rows.filter((row) => row.failed && (seq === null || (by > 0 ? row.seq > seq : row.seq < seq)));
    return (by > 0 ? bad[0] : bad.at(-1))?.seq ?? null;
  }
}

export class Outline {
  /** jump(seq) goes to a Call; leave() gives the keys back to the transcript; forks() are Calls that something was forked at,
   * files() those that changed files. */
  constructor(root, facts, { jump, leave, forks, files }) {
    Object.assign(this, { root, facts, jump, leave, forks, files, facet: "all", rows: [] });
    this.tabs = h("div", { class: "facets", role: "group", "aria-label": "Outline of" });
    this.box = h("div", { class: "list lines" });
    put(root, h("h2", {}, "Outline", h("span", { class: "dim hint-key" }, h("kbd", {}, "o"))), this.tabs, this.box);
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.list = new RowList(this.box, {
      height: () => 24, label: "Outline", load: async (start, stop) => ({ rows: this.rows.slice(start, stop), total: this.rows.length }),
      draw: (row) => this.line(row), open: () => this.leave(), selected: (row) => row && this.jump(row.seq),
      empty: () => h("p", { class: "hint notice" }, "Nothing here"),
    });
  }

  destroy() {
    this.list.destroy();
  }

  /** What the lists are: [key, label, rows]; empty ones are left out. */
  facets() {
    const { rows } = this.facts;
    const tools = new Map();
    for (const row of rows) for (const tool of row.tools) tools.set(tool, [...(tools.get(tool) ?? []), row]);
    const most = [...tools].sort((a, b) => b[1].length - a[1].length).slice(0, TOOLS);
    const [forked, changed] = [new Set(this.forks()), new Set(this.files())];
    return [
      ["all", "all", rows], ["errors", "errors", rows.filter((row) => row.failed)], ["replies", "replies", rows.filter((row) => row.kind === "ask")],
      ["forks", "forks", rows.filter((row) => forked.has(row.seq))], ["files", "files changed", rows.filter((row) => changed.has(row.seq))], ...most.map(([tool, used]) => [`tool ${tool}`, tool, used]),
    ].filter(([key, , found]) => found.length || key === "all");
  }

  show() {
    const facets = this.facets();
    const now = facets.find(([key]) => key === this.facet) ?? facets[0];
    this.facet = now[0];
    const focused = [...this.tabs.children].indexOf(document.activeElement);
    put(this.tabs, facets.map(([key, label, rows]) => button([said(label), h("span", { class: "dim" }, ` ${whole(rows.length)}`)], () => this.choose(key),
      { class: `chip ${key === "errors" ? "bad" : ""}`, "aria-pressed": String(key === this.facet) })));
    this.tabs.children[focused]?.focus();
    this.rows = now[2];
    this.list.reload();
  }

  choose(key) {
    this.facet = key;
    this.list.index = -1;
    this.box.scrollTop = 0;
    this.show();
  }

  line(row) {
    const title = row.tools.length && row.kind === "act" ? [h("b", {}, said(row.tools[0])), " "] : null;
    return h("div", { class: `row line ${row.kind} ${row.failed ? "broke" : ""}`, title: plain(`@${row.seq} ${row.kind}${row.failed ? ", failed" : ""}`), id: `o-${row.seq}` },
      h("span", { class: "at" }, `@${row.seq}`), h("span", { class: "text" }, title, said(row.label || row.kind)), h("span", { class: "took" }, row.seconds >= 0.01 ? seconds(row.seconds) : ""));
  }

  /** Show which line is the Call that is selected, without going anywhere. */
  mark(seq) {
    const at = seq === null ? -1 : this.rows.findIndex((row) => row.seq === seq);
    if (at === this.list.index) return;
    this.list.drawn.get(this.list.index)?.setAttribute("aria-selected", false);
    this.list.index = at;
    this.list.drawn.get(at)?.setAttribute("aria-selected", true);
    if (at >= 0) this.list.show(at);
  }

  focus() {
    this.box.focus();
    if (this.list.index < 0) this.list.select(0);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = { ArrowDown: () => this.list.move(1), j: () => this.list.move(1), ArrowUp: () => this.list.move(-1), k: () => this.list.move(-1),
      ArrowRight: () => this.turn(1), l: () => this.turn(1), ArrowLeft: () => this.turn(-1), h: () => this.turn(-1),
      Home: () => this.list.select(0), End: () => this.list.select(this.rows.length - 1), Enter: () => this.leave(), Escape: () => this.leave() };
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  }

  /** The next list. */
  turn(by) {
    const keys = this.facets().map(([key]) => key);
    this.choose(keys[(keys.indexOf(this.facet) + by + keys.length) % keys.length]);
    this.tabs.querySelector("[aria-pressed=true]")?.scrollIntoView({ block: "nearest" });
  }
}

/** Draw an outline at most four times a second. */
export const gently = (draw) => later(250, draw);
