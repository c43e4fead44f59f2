// The strip above a list of runs: what they have in common, a chart over any value, their export, and queries that are kept.
//
// Kept queries are in this browser's local storage: they are a person's own, and a store that is looked at stays as it is.

import { get, listen } from "./api.js";
import { button, h, later, plain, put, said, svg, toast } from "./dom.js";
import { money, number, plural, seconds, share, when, whole } from "./format.js";

const KEY = "queries";
const MANY = 40; // queries that are kept
const [WIDTH, HEIGHT] = [260, 40]; // pixels of the chart
const SHOW = { success: share, crashed: share, cost: money, seconds };

export class Overview {
  /** query() is what the list asks; search(text) shows another. */
  constructor({ query, typed, search }) {
    Object.assign(this, { query, typed, search });
    this.facts = h("div", { class: "facts", tabindex: 0, role: "group", "aria-label": "These runs as a whole" });
    this.value = h("select", { "aria-label": "Chart over", on: { change: () => this.read() } }, h("option", { value: "return" }, "return"));
    this.kind = h("select", { "aria-label": "Chart as", on: { change: () => this.chart() } }, ["how often", "over time"].map((one) => h("option", { value: one }, one)));
    this.canvas = h("figure", { class: "smallchart" });
    this.kept = h("span", { class: "kept" });
    const link = (form) => h("a", { class: "button", download: `runs.${form}`, on: { click: (event) => (event.currentTarget.href = `/api/export?${new URLSearchParams({ q: this.query(), format: form })}`) }, href: `/api/export?format=${form}`, title: `Export what is shown as ${form.toUpperCase()}` }, form.toUpperCase());
    this.root = h("section", { class: "overview", "aria-label": "Overview" }, this.facts,
      h("div", { class: "charting" }, h("span", { class: "selects" }, this.value, this.kind), this.canvas),
      h("div", { class: "keeping" }, h("span", { class: "dim" }, "Export"), link("jsonl"), link("csv"), button("Keep query", () => this.keep()), this.kept));
    this.read = later(250, () => this.ask());
    this.stop = listen("runs", later(2000, () => this.read()));
    this.drawKept();
  }

  close() {
    this.stop();
    this.closed = true;
  }

  async ask() {
    const q = this.query();
    try {
      const data = await get("overview", { q, value: this.value.value });
      if (this.closed || q !== this.query()) return;
      this.data = data;
      this.draw();
    } catch { /* the list says what is wrong with the query */
      put(this.facts);
      put(this.canvas);
    }
  }

  draw() {
    const { success, crashed, cost, lengths, values, chart, runs, read, tasks, open } = this.data;
    const fact = (label, value, title = "") => h("span", { class: "fact", title: plain(title) }, h("span", { class: "dim" }, `${label} `), value);
    const length = (name, show) => lengths[name] && fact(name, [h("b", {}, show(lengths[name][1])), h("span", { class: "dim" }, ` ${show(lengths[name][0])}–${show(lengths[name][2])}`)], "median, and the 10 % and 90 % quantiles");
    put(this.facts, runs > 0 && [
      success && fact("success", [h("b", {}, share(success.estimate)), h("span", { class: "dim" }, ` [${share(success.low)}, ${share(success.high)}]`)], `95 %, ${success.how}, ${plural(success.n, "judged run")}`),
      fact("tasks", whole(tasks)), length("steps", (x) => number(x, 1)), length("tokens", (x) => number(x, 1)), length("seconds", seconds), fact("cost", money(cost)),
      crashed?.estimate > 0 && h("span", { class: "fact broke" }, `${share(crashed.estimate)} crashed`), open > 0 && fact("running", whole(open)), read < runs && fact("of the first", plural(read, "run"))]);
    put(this.value, values.map((one) => h("option", { value: one, selected: one === chart.value }, plain(one))));
    this.chart();
  }

  chart() {
    const { chart } = this.data ?? {};
    if (!chart?.n) {
      put(this.canvas, chart && h("span", { class: "dim" }, "no values"));
      return;
    }
    const time = this.kind.value === "over time";
    if (time && !chart.over) put(this.canvas, h("span", { class: "dim" }, "all made at once"));
    else put(this.canvas, time ? this.overTime(chart) : this.counts(chart));
  }

  counts({ value, counts, low, high, mean, n }) {
    const show = SHOW[value] ?? ((x) => number(x, 2));
    const most = Math.max(...counts);
    const el = frame(`${value} of ${plural(n, "run")}, from ${show(low)} to ${show(high)}, mean ${show(mean)}`);
    counts.forEach((count, i) => el.append(bar(i, counts.length, 0, count / most, `${whole(count)}`)));
    return [el, ends(show(low), `mean ${show(mean)}`, show(high))];
  }

  overTime({ value, over }) {
    const show = SHOW[value] ?? ((x) => number(x, 2));
    const known = over.means.filter((mean) => mean !== null);
    const [low, high] = [Math.min(0, ...known), Math.max(0, ...known)];
    const size = high - low || 1;
    const el = frame(`mean ${value} over time, from ${show(known[0])} to ${show(known.at(-1))}`);
    over.means.forEach((mean, i) => mean !== null && el.append(bar(i, over.means.length, (Math.min(0, mean) - low) / size, Math.abs(mean) / size, `${show(mean)}, ${plural(over.counts[i], "run")}`)));
    return [el, ends(when(over.start), `${show(low)} to ${show(high)}`, when(over.stop))];
  }

  // queries that are kept

  queries() {
    try {
      const found = JSON.parse(localStorage.getItem(KEY));
      return Array.isArray(found) ? found.filter((one) => typeof one === "string").slice(0, MANY) : [];
    } catch {
      return [];
    }
  }

  keep() {
    const typed = this.typed().trim();
    if (!typed) {
      toast("Type a query first: the list of all runs needs no keeping");
      return;
    }
    this.store([typed, ...this.queries().filter((one) => one !== typed)].slice(0, MANY));
  }

  store(queries) {
    localStorage.setItem(KEY, JSON.stringify(queries));
    this.drawKept();
  }

  drawKept() {
    put(this.kept, this.queries().map((one) => h("span", { class: "keptone" }, button(said(one), () => this.search(one), { class: "chip", title: plain(one) }),
      button("×", () => this.store(this.queries().filter((other) => other !== one)), { class: "quiet", "aria-label": `Forget ${plain(one)}` }))));
  }
}

function frame(label) {
  return svg("svg", { width: "100%", height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": plain(label) });
}

/** The i-th of so many bars: from `low` up, as shares of the height; what is not nothing is at least a pixel high. */
function bar(i, count, low, size, title) {
  const width = WIDTH / count;
  const height = size > 0 ? Math.max(1, size * (HEIGHT - 2)) : 0;
  return svg("rect", { x: i * width + Math.min(1, width / 8), width: Math.max(0.5, width - Math.min(2, width / 4)), y: HEIGHT - low * (HEIGHT - 2) - height, height }, svg("title", {}, title));
}

const ends = (...texts) => h("figcaption", {}, texts.map((text) => h("span", {}, text)));
