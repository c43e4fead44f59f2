// Reports: what was claimed, with its estimate, interval, n, design and figures.

import { get, listen } from "./api.js";
import { h, later, loading, notice, plain, put, said } from "./dom.js";
import { number, plural, whole } from "./format.js";
import { runLink } from "./runrow.js";

export async function reportsView(root) {
  put(root, loading("Reading reports"));
  return new Reports(root).begin();
}

const FEW = 24; // reports up to which all are unfolded at the start
const OWN = "This store";

class Reports {
  constructor(root) {
    Object.assign(this, { root, index: -1 });
    this.keys = {
      j: ["Next report", () => this.move(1)],
      k: ["Previous report", () => this.move(-1)],
      enter: ["Show its design and runs, or hide them", () => this.fold()],
    };
  }

  async begin() {
    this.again = later(400, () => this.read());
    this.stops = [listen("reports", () => this.again())];
    await this.read();
    return this;
  }

  close() {
    this.stops.forEach((stop) => stop());
  }

  async read() {
    const reports = await get("reports");
    const head = h("header", { class: "runhead" }, h("div", { class: "title" }, h("h1", {}, "Reports"), h("span", { class: "prompt" }, plural(reports.length, "report"))));
    if (!reports.length) {
      put(this.root, head, notice("No reports", "`clew eval`, the audits and `clew reproduce` write them; each has an estimate, an interval and n."));
      return;
    }
    const seen = new Set(); // a figure of several reports is drawn with the first of them
    const sources = Map.groupBy(reports, (report) => report.source?.split(":")[0] || OWN);
    const few = reports.length <= FEW;
    this.list = h("div", {}, [...sources].map(([source, own]) => h("details", { class: "sourcebox", open: few || source === OWN },
      h("summary", {}, h("h2", {}, said(source)), h("span", { class: "dim" }, summary(own))),
      h("ol", { class: "reports" }, own.map((report) => card(report, seen))))));
    const field = h("input", { type: "search", placeholder: "Words of a claim or its source", "aria-label": "Filter reports", on: { input: later(150, () => this.filter(field.value)) } });
    put(this.root, head, h("search", { class: "bar" }, field), h("div", { class: "scroller" }, this.list));
  }

  /** Show the reports that hold every word, and their sources unfolded. */
  filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const source of this.list.children) {
      const cards = [...source.querySelectorAll(".report")];
      for (const one of cards) one.hidden = !words.every((word) => one.textContent.toLowerCase().includes(word));
      source.hidden = cards.every((one) => one.hidden);
      if (words.length) source.open = true;
    }
  }

  move(by) {
    const items = [...(this.list?.querySelectorAll(".sourcebox[open] .report:not([hidden])") ?? [])];
    items[this.index]?.removeAttribute("aria-current");
    this.index = Math.max(0, Math.min(items.length - 1, this.index + by));
    items[this.index]?.setAttribute("aria-current", "true");
    items[this.index]?.scrollIntoView({ block: "nearest" });
  }

  fold() {
    const details = this.list?.querySelector(".report[aria-current] details");
    if (details) details.open = !details.open;
  }
}

function summary(reports) {
  const missed = reports.filter((report) => report.met === false).length;
  return [plural(reports.length, "report"), missed ? `, ${missed} not met` : ""];
}

function card(report, seen) {
  const { id, claim, source = "", met = null, estimate, low, high, level, n, design, runs = [], caveats = [], figures = [] } = report;
  const percent = Math.round(100 * (level ?? 0.95));
  const own = figures.filter((url) => /^\/(?!\/)/.test(url) && !seen.has(url)); // of this server only
  own.forEach((url) => seen.add(url));
  return h("li", { class: "report" },
    h("h3", {}, said(claim), met !== null && h("span", { class: `tag ${met ? "" : "warn"}` }, met ? "met" : "not met"), h("span", { class: "dim source" }, said(source || id))),
    h("div", { class: "figures" }, h("span", { class: "estimate num" }, number(estimate)), interval(estimate, low, high),
      h("span", { class: "num" }, `[${number(low)}, ${number(high)}]`), h("span", { class: "dim" }, `${percent} % interval`), h("span", { class: "num" }, `n = ${whole(n)}`)),
    caveats.length > 0 && h("ul", { class: "caveats" }, caveats.map((one) => h("li", {}, said(one)))),
    own.length > 0 && h("div", { class: "pictures" }, own.map((url) => h("a", { href: url }, h("img", { src: url, alt: plain(`Figure of ${claim}`), loading: "lazy" })))),
    h("details", {}, h("summary", {}, "Design", runs.length ? ` and ${plural(runs.length, "run")}` : ""), h("p", {}, said(design)), h("p", { class: "dim mono" }, plain(id)),
      runs.length > 0 && h("p", { class: "links" }, runs.slice(0, 60).map((run) => [runLink(run), " "]), runs.length > 60 && h("span", { class: "dim" }, `and ${whole(runs.length - 60)} more`))));
}

/** The interval on an axis: shares on 0 to 1, else on what holds the interval and 0. */
function interval(estimate, low, high) {
  const share = low >= 0 && high <= 1;
  const pad = (Math.max(high, 0) - Math.min(low, 0)) * 0.08;
  const [from, to] = share ? [0, 1] : [Math.min(low, 0) - pad, Math.max(high, 0) + pad];
  const left = (value) => `${(100 * (value - from)) / (to - from || 1)}%`;
  return h("span", { class: "interval large", "aria-hidden": "true" }, h("i", { class: "nought", style: { left: left(0) } }),
    h("i", { class: "reach", style: { left: left(low), width: `${(100 * (high - low)) / (to - from || 1)}%` } }), h("i", { class: "point", style: { left: left(estimate) } }));
}
