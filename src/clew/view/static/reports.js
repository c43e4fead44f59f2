// Reports: what was claimed, with its estimate, interval, n, design and figures.

import { get, listen } from "./api.js";
import { h, later, loading, notice, plain, put, said } from "./dom.js";
import { number, plural, whole } from "./format.js";
import { interval } from "./interval.js";
import { runLink } from "./runrow.js";

export async function reportsView(root, where) {
  put(root, loading("Reading reports"));
  return new Reports(root, where.query.get("q") ?? "").begin();
}

const FEW = 24; // reports up to which all are unfolded at the start
const OWN = "This store";

class Reports {
  constructor(root, sought) {
    Object.assign(this, { root, sought, index: -1 });
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
    this.list = h("div", {}, [...sources].map(([source, own]) => h("details", { class: "sourcebox", data: { source }, open: few || source === OWN || source.startsWith("clew ") },
      h("summary", {}, h("h2", {}, said(source)), h("span", { class: "dim" }, summary(own))), more(own),
      h("ol", { class: "reports" }, own.map((report) => card(report, seen))))));
    const field = h("input", { type: "search", placeholder: "Words of a claim or its source", "aria-label": "Filter reports", value: this.sought, on: { input: later(150, () => this.filter((this.sought = field.value))) } });
    put(this.root, head, h("search", { class: "bar" }, field), h("div", { class: "scroller" }, this.list));
    if (this.sought) this.filter(this.sought);
  }

  /** Show the reports that hold every word, and their sources unfolded. */
  filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const source of this.list.children) {
      const cards = [...source.querySelectorAll(".report")];
      for (const one of cards) one.hidden = !words.every((word) => `${source.dataset.source} ${one.textContent}`.toLowerCase().includes(word));
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

const MORE = { features: "Features of this comparison, with their contexts and effects", early: "The commitment curve" };

/** The page that shows what the reports of an audit are about. */
function more(reports) {
  const page = reports.map((report) => report.more).find(Boolean);
  return page ? h("p", { class: "more" }, h("a", { href: `#/${page}` }, MORE[page.split("/")[0]])) : null;
}

function summary(reports) {
  const missed = reports.filter((report) => report.met === false).length;
  return [plural(reports.length, "report"), missed ? `, ${missed} not met` : ""];
}

function card(report, seen) {
  const { id, claim, source = "", page = "", met = null, estimate, low, high, level, n, design, runs = [], caveats = [], figures = [] } = report;
  const percent = Math.round(100 * (level ?? 0.95));
  const own = figures.filter((url) => /^\/(?!\/)/.test(url) && !seen.has(url)); // of this server only
  own.forEach((url) => seen.add(url));
  return h("li", { class: "report" },
    h("h3", {}, page ? h("a", { href: `#/${page}` }, said(claim)) : said(claim), met !== null && h("span", { class: `tag ${met ? "" : "warn"}` }, met ? "met" : "not met"), h("span", { class: "dim source" }, said(!source || source.startsWith("clew ") ? id : source))),
    h("div", { class: "figures" }, h("span", { class: "estimate num" }, number(estimate)), interval(estimate, low, high, "large"),
      h("span", { class: "num" }, `[${number(low)}, ${number(high)}]`), h("span", { class: "dim" }, `${percent} % interval`), h("span", { class: "num" }, `n = ${whole(n)}`)),
    caveats.length > 0 && h("ul", { class: "caveats" }, caveats.map((one) => h("li", {}, said(one)))),
    own.length > 0 && h("div", { class: "pictures" }, own.map((url) => h("a", { href: url }, h("img", { src: url, alt: plain(`Figure of ${claim}`), loading: "lazy" })))),
    h("details", {}, h("summary", {}, "Design", runs.length ? ` and ${plural(runs.length, "run")}` : ""), h("p", {}, said(design)), h("p", { class: "dim mono" }, plain(id)),
      runs.length > 0 && h("p", { class: "links" }, runs.slice(0, 60).map((run) => [runLink(run), " "]), runs.length > 60 && h("span", { class: "dim" }, `and ${whole(runs.length - 60)} more`))));
}
