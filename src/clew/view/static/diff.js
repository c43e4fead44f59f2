// Two runs side by side: one column while they are equal, two from the Call where they part.

import { get, name } from "./api.js";
import { button, h, loading, failure, notice, plain, put, said, toast } from "./dom.js";
import { number, plural, whole } from "./format.js";
import { drawCall } from "./call.js";
import { FlowList } from "./flowlist.js";
import { dot, ending, runLink } from "./runrow.js";
import { filesDiffRoute } from "./stepfiles.js";
import { Shade } from "./tokens.js";

export async function diffView(root, where) {
  const [a, b] = where.parts;
  if (!a || !b) {
    put(root, notice("A diff needs two runs", "Mark one with d in the list of runs, then press d on the other."));
    return { close() {} };
  }
  put(root, loading("Comparing"));
  return new Diff(root, await get("diff", { a, b })).begin();
}

class Diff {
  constructor(root, facts) {
    Object.assign(this, { root, facts, a: facts.a.run, b: facts.b.run });
    this.shade = new Shade("logprob");
    this.total = Math.max(facts.total_a, facts.total_b);
    this.seq = facts.at;
    this.keys = {
      j: ["Next Call", () => this.step(1)],
      k: ["Previous Call", () => this.step(-1)],
      d: ["To where they part", () => this.facts.at !== null && this.choose(this.facts.at)],
      x: ["Swap sides", () => (location.hash = `#/diff/${name(this.b)}/${name(this.a)}`)],
      f: ["Fork the left run here", () => this.open(this.a, "?do=fork")],
      enter: ["Open the left run here", () => this.open(this.a)],
      l: ["Open the right run here", () => this.open(this.b)],
      s: ["The files of both, at this Call where it is of both, or at their ends", () => this.toFiles()],
      G: ["To the end", () => this.choose(this.total - 1)],
      h: ["To the start", () => this.choose(0)],
    };
  }

  async begin() {
    const { at } = this.facts;
    const verdict = at === null ? `equal: all ${whole(this.total)} Calls are the same` : `equal up to Call ${at}; ${plural(this.facts.total_a - at, "Call")} on the left from there, ${whole(this.facts.total_b - at)} on the right`;
    const box = h("div", { class: "transcript two", tabindex: 0, role: "list", "aria-label": "Both runs" });
    put(
      this.root,
      h("header", { class: "runhead" }, h("div", { class: "title" }, h("h1", {}, "Diff"), h("span", { class: "prompt" }, verdict),
        h("span", { class: "actions" }, at !== null && button(["Where they part ", h("kbd", {}, "d")], () => this.choose(at)), button(["Swap ", h("kbd", {}, "x")], this.keys.x[1]), this.facts.files && button(["Files ", h("kbd", {}, "s")], () => (location.hash = filesDiffRoute(this.a, this.b)))))),
      this.differences(),
      h("div", { class: "sides" }, this.side(this.facts.a, "left"), this.side(this.facts.b, "right")),
      box,
    );
    this.list = new FlowList(box, { load: (start, stop) => this.load(start, stop), draw: (pair, i) => this.draw(pair, i), failed: (error) => put(this.root, failure(error)), guess: 70 });
    await this.list.start(Math.max(0, (at ?? 0) - 2));
    box.focus({ preventScroll: true });
    return this;
  }

  close() {
    this.list?.destroy();
  }

  side(s, which) {
    return h("div", { class: `head ${which}` }, dot(s), runLink(s.run), h("span", {}, "return ", h("b", {}, number(s.reward))), h("span", { class: "dim" }, ending(s), `, ${plural(s.steps, "step")}, ${whole(s.tokens)} tokens`));
  }

  /** What differs in the Call where they part, field by field. */
  differences() {
    const rows = this.facts.differs ?? [];
    if (this.facts.at === null) return null;
    const show = (value) => (value === null || value === undefined ? h("span", { class: "dim" }, "absent") : said(typeof value === "string" ? value : JSON.stringify(value)));
    return h("details", { class: "differs", open: true },
      h("summary", {}, `What differs in Call ${this.facts.at}`, h("span", { class: "dim" }, ` ${plural(rows.length, "field")}`)),
      h("div", { class: "scroll" }, h("table", { class: "grid" },
        h("thead", {}, h("tr", {}, h("th", {}, "Field"), h("th", {}, plain(this.a)), h("th", {}, plain(this.b)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, row.field.replaceAll("_", " ")), h("td", { class: "mono" }, show(row.a)), h("td", { class: "mono" }, show(row.b))))))));
  }

  /** Pairs of Calls by number; where the runs are equal the second is not read. */
  async load(start, stop) {
    const at = this.facts.at ?? this.total;
    const read = async (run, total, from) => (from >= Math.min(stop, total) ? [] : (await get(`run/${name(run)}/calls`, { start: from, stop })).calls);
    const [left, right] = await Promise.all([read(this.a, this.facts.total_a, start), read(this.b, this.facts.total_b, Math.max(start, at))]);
    const skip = Math.max(0, at - start);
    const length = Math.min(stop, this.total) - start;
    const rows = Array.from({ length }, (_, i) => ({ a: left[i] ?? null, b: i < skip ? null : right[i - skip] ?? null, same: start + i < at }));
    return { rows, total: this.total };
  }

  draw(pair, i) {
    const side = (run, which, call) => (call ? drawCall(call, this.context(run, which)) : h("div", { class: "gone dim" }, "ended"));
    if (pair.same) return h("div", { class: "pair same" }, side(this.a, "a", pair.a));
    const parts = [side(this.a, "a", pair.a), side(this.b, "b", pair.b)];
    return h("div", { class: `pair ${i === this.facts.at ? "parting" : ""}`, "aria-current": i === this.seq ? "true" : null }, i === this.facts.at && h("div", { class: "partline" }, "they part here"), parts);
  }

  context(run, which) {
    return { run, shade: this.shade, selected: this.seq, token: null, forks: null, before: (call) => this.list.pages.at(call.seq - 1)?.[which] ?? null, choose: (seq) => this.choose(seq, false) };
  }

  choose(seq, show = true) {
    const before = this.seq;
    this.seq = Math.max(0, Math.min(this.total - 1, seq));
    for (const i of new Set([before, this.seq])) if (i !== null) this.list.redraw(i);
    if (show) this.list.show(this.seq);
    else this.list.render();
  }

  step(by) {
    this.choose(this.seq === null ? 0 : this.seq + by);
  }

  /** The files of both runs, at the chosen Call, or at the end of a run that is shorter. */
  toFiles() {
    const at = (run, total) => (this.seq === null || this.seq === this.facts.at || this.seq >= total - 1 ? run : `${run}@${this.seq}`);
    if (this.facts.files) location.hash = filesDiffRoute(at(this.a, this.facts.total_a), at(this.b, this.facts.total_b));
    else toast("Not both of these runs were recorded with their files");
  }

  open(run, more = "") {
    location.hash = `#/run/${name(run)}${this.seq === null ? "" : `@${this.seq}`}${more}`;
  }
}
