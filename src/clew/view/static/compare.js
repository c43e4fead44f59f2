// Two queries side by side: figures with the interval of their difference, the tasks that flipped, and what they were told.

import { get, name } from "./api.js";
import { button, failure, h, loading, notice, plain, put, said } from "./dom.js";
import { money, number, plural, seconds, share, signed, tail, whole } from "./format.js";
import { cameFrom } from "./near.js";
import { meant, quoted } from "./query.js";

const SHOW = { return: number, success: share, crashed: share, steps: (value) => number(value, 1), tokens: (value) => number(value, 1), cost: money, seconds };
const SIDES = ["A", "B"];
const FEW = 10; // tasks below which an interval is little to go by
const LONG = 240; // characters of an equal piece that are shown at each end

export function compareView(root, where) {
  return new Compare(root).begin(where);
}

export const compareRoute = (a, b = null) => `#/compare?${new URLSearchParams(b === null ? { a } : { a, b })}`;

class Compare {
  constructor(root) {
    Object.assign(this, { root, index: -1, flips: [] });
    this.keys = {
      j: ["Next task that flipped", () => this.move(1)],
      k: ["Previous task that flipped", () => this.move(-1)],
      enter: ["Diff of a run of A and a run of B on that task", () => this.open()],
      x: ["Swap sides", () => this.swap()],
    };
  }

  async begin(where) {
    this.fields = SIDES.map((label) => h("input", { type: "search", "aria-label": `Query ${label}`, spellcheck: "false", autocomplete: "off",
      placeholder: label === "A" ? "model=… or name=…/*, as in the list of runs" : "what to compare it with", list: "choices",
      on: { keydown: (event) => event.key === "Enter" && this.ask() } }));
    this.body = h("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Comparison" });
    this.choices = h("datalist", { id: "choices" });
    const side = (label, i) => h("label", {}, h("span", { class: `side${label}` }, label), this.fields[i]);
    put(this.root, h("header", { class: "runhead" }, h("div", { class: "title" }, h("h1", {}, "Compare")),
      h("search", { class: "sidesbar" }, SIDES.map(side), button("Compare", () => this.ask(), { class: "primary" }), button(["Swap ", h("kbd", {}, "x")], () => this.swap())), this.choices), this.body);
    await this.show(where.query);
    return this;
  }

  stay(where) {
    if (where.view !== "compare") return false;
    this.show(where.query);
    return true;
  }

  close() {
    this.left = true;
  }

  ask() {
    const route = compareRoute(...this.fields.map((field) => field.value.trim()));
    if (location.hash === route) this.show(new URLSearchParams(route.split("?")[1]));
    else location.hash = route;
  }

  swap() {
    [this.fields[0].value, this.fields[1].value] = this.fields.map((field) => field.value).reverse();
    this.ask();
  }

  async show(query) {
    const [a, b] = [query.get("a") ?? "", query.get("b")];
    [this.fields[0].value, this.fields[1].value] = [a, b ?? ""];
    this.asked = `${a}\n${b}`;
    const asked = this.asked;
    put(this.body, loading("Comparing"));
    try {
      const data = await get("compare", b === null ? {} : { a: meant(a), b: meant(b) || " " });
      if (asked !== this.asked || this.left) return;
      if (data.choices) this.suggest(data.choices);
      else this.draw(data);
    } catch (error) {
      put(this.body, failure(error));
    }
  }

  /** Where the second query is missing: what there is to compare. */
  suggest(choices) {
    const terms = Object.entries(choices).flatMap(([field, values]) => values.map(([value, n]) => [`${field}=${quoted(value)}`, n]));
    put(this.choices, terms.map(([term]) => h("option", { value: plain(term) })));
    const list = terms.map(([term, n]) => h("li", {}, button(said(term), () => this.take(term), { class: "chip" }), h("span", { class: "dim" }, ` ${plural(n, "run")}`)));
    put(this.body, notice("Choose what to compare", "Two queries, such as two models, two collections, or one model before and after a date.", "empty"), h("ul", { class: "takes" }, list));
  }

  take(term) {
    const empty = this.fields.find((field) => !field.value) ?? this.fields[1];
    empty.value = term;
    if (this.fields.every((field) => field.value)) this.ask();
    else this.fields[1].focus();
  }

  draw(data) {
    this.flips = [...data.better, ...data.worse];
    this.index = -1;
    const nothing = data.sides.findIndex((side) => side.runs === 0);
    if (nothing >= 0) {
      put(this.body, notice(`No run fits ${SIDES[nothing]}`, "Change its query: field=value compares, as in the list of runs.", "empty", button("Show what there is", () => (location.hash = compareRoute("")))));
      return;
    }
    put(this.body, h("div", { class: "compare" }, this.sides(data), cautions(data), figures(data), this.flipped(data), prompts(data), settings(data)));
  }

  sides(data) {
    const line = (side, i) => h("div", { class: "sideline" }, h("span", { class: `side${SIDES[i]}` }, SIDES[i]),
      h("a", { href: `#/runs?${new URLSearchParams({ q: this.fields[i].value })}` }, plural(side.runs, "run")), h("span", {}, `${plural(side.tasks, "task")}`),
      side.success && h("span", {}, `success ${share(side.success.estimate)}`, h("span", { class: "dim" }, ` of ${whole(side.judged)} judged`)),
      side.crashed?.estimate > 0 && h("span", { class: "broke" }, `${share(side.crashed.estimate)} crashed`), h("span", { class: "dim" }, said(side.models.map(tail).join(", "))));
    return h("div", { class: "sidelines" }, data.sides.map(line));
  }

  flipped(data) {
    const table = (rows, title, total, first) => h("section", {}, h("h2", {}, title, h("span", { class: "dim" }, ` ${plural(total, "task")}${total > rows.length ? `, the first ${rows.length}` : ""}`)),
      rows.length ? h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, h("table", { class: "grid flips" }, h("thead", {}, h("tr", {}, ["Task", "A", "B", "Runs", ""].map((label, i) => h("th", { class: i === 1 || i === 2 ? "num" : "" }, label)))),
        h("tbody", {}, rows.map((row, i) => this.flip(row, first + i))))) : h("p", { class: "hint" }, "None."));
    return h("div", { class: "fliptables" }, table(data.better, "Succeed with B alone", data.flipped[0], 0), table(data.worse, "Succeed with A alone", data.flipped[1], data.better.length));
  }

  flip(row, i) {
    const link = (run, label) => h("a", { href: `#/run/${name(run)}`, class: "id", on: { click: () => this.leave(label) } }, plain(run));
    return h("tr", { data: { i } }, h("td", { class: "text" }, said(row.task)), h("td", { class: "num" }, number(row.a, 2)), h("td", { class: "num" }, number(row.b, 2)),
      h("td", {}, link(row.runs[0], 0), " ", link(row.runs[1], 1)), h("td", {}, h("a", { href: diffRoute(row), "aria-label": `Diff on ${plain(row.task)}` }, "diff")));
  }

  /** Remember the list, so that a run's page leads to the next of the same side. */
  leave(which) {
    cameFrom({ ids: this.flips.map((row) => row.runs[which]), back: location.hash, title: `tasks that flipped, ${SIDES[which]}` });
  }

  move(by) {
    if (!this.flips.length) return;
    this.index = Math.max(0, Math.min(this.flips.length - 1, this.index + by));
    for (const row of this.body.querySelectorAll(".flips tbody tr")) {
      const here = Number(row.dataset.i) === this.index;
      row.toggleAttribute("aria-current", here);
      if (here) row.scrollIntoView({ block: "nearest" });
    }
  }

  open() {
    const row = this.flips[this.index];
    if (row) location.hash = diffRoute(row);
  }
}

const diffRoute = (row) => `#/diff/${row.runs.map(name).join("/")}`;

/** What a reader must know before the figures. */
function cautions(data) {
  const said = [];
  if (!data.paired) said.push("The sides have no task in common: nothing can be paired. Compare runs of the same tasks.");
  else {
    const [a, b] = data.sides;
    if (data.paired < Math.max(a.tasks, b.tasks)) said.push(`${plural(data.paired, "task")} of ${whole(a.tasks)} and ${whole(b.tasks)} are on both sides; the others are left out.`);
    if (data.paired < FEW) said.push(`Only ${plural(data.paired, "task")}: the intervals are too narrow to rely on.`);
  }
  if (data.same) said.push(`${plural(data.same, "run")} are on both sides.`);
  data.sides.forEach((side, i) => {
    if (side.ended < side.read) said.push(`${plural(side.read - side.ended, "run")} of ${SIDES[i]} still go on.`);
    if (side.judged < side.ended) said.push(`${plural(side.ended - side.judged, "run")} of ${SIDES[i]} ended without a verdict and count in neither return nor success.`);
    if (side.read < side.runs) said.push(`Of ${SIDES[i]} the first ${whole(side.read)} runs are compared.`);
  });
  return said.length ? h("ul", { class: "cautions" }, said.map((one) => h("li", {}, one))) : null;
}

function figures({ metrics }) {
  const known = metrics.filter((row) => row.n);
  if (!known.length) return null;
  const row = (it) => {
    const show = SHOW[it.metric];
    const d = it.difference;
    const plus = (value) => (value === null ? "–" : it.metric === "success" || it.metric === "crashed" ? `${value > 0 ? "+" : ""}${share(value)}`.replace("-", "−") : it.metric === "cost" || it.metric === "seconds" ? `${value < 0 ? "−" : "+"}${show(Math.abs(value))}` : signed(value, 3));
    const certain = d.low !== null && (d.low > 0 || d.high < 0);
    return h("tr", {}, h("th", { scope: "row" }, it.metric), h("td", { class: "num" }, show(it.a)), h("td", { class: "num" }, show(it.b)), h("td", { class: `num ${certain ? "certain" : ""}` }, plus(d.estimate)),
      h("td", {}, d.low === null ? h("span", { class: "dim" }, d.how) : [line(d), h("span", { class: "num" }, ` [${plus(d.low)}, ${plus(d.high)}]`)]), h("td", { class: "num" }, whole(it.n)));
  };
  const how = known.find((it) => it.difference.low !== null)?.difference.how;
  return h("section", {}, h("h2", {}, "Figures"), h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Figures" }, h("table", { class: "grid figuretable" },
    h("thead", {}, h("tr", {}, ["Mean over tasks", "A", "B", "B − A", "95 % interval", "Tasks"].map((label, i) => h("th", { class: [1, 2, 3, 5].includes(i) ? "num" : "" }, label)))), h("tbody", {}, known.map(row)))),
    h("p", { class: "hint" }, `A task's mean over its runs counts once, and tasks are paired. ${how ? `Intervals: ${how}. ` : ""}Bold differences have an interval without 0.`));
}

/** An interval of a difference as a line with 0 in its middle. */
function line({ estimate, low, high }) {
  const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
  const at = (value) => `${50 + (48 * value) / most}%`;
  return h("span", { class: "interval", "aria-hidden": "true" }, h("i", { class: "nought", style: { left: "50%" } }),
    h("i", { class: "reach", style: { left: at(low), width: `${(48 * (high - low)) / most}%` } }), h("i", { class: "point", style: { left: at(estimate) } }));
}

function prompts({ prompts: all, prompts_vary: vary, runs_read: read }) {
  if (!all.length) return null;
  const varies = (vary ?? []).flatMap((one, i) => (one ? [`The runs of ${SIDES[i]} that were read have different system prompts; one of them is shown.`] : []));
  const one = (message) => h("div", { class: "promptdiff" }, h("h3", {}, plain(message.role), message.equal && h("span", { class: "dim" }, ": the same on both sides")), words(message.words));
  return h("section", {}, h("h2", {}, "First messages"), h("p", { class: "hint" }, "Of ", read.map((runs, i) => [i ? " and " : "", h("a", { class: "id", href: `#/run/${name(runs[0])}` }, plain(runs[0]))]), ". ", varies.join(" ")), all.map(one));
}

/** A text with what A alone says and what B alone says; long equal pieces are folded. */
export function words(pieces) {
  const shown = ([op, text]) => {
    if (op === "-") return h("del", {}, said(text));
    if (op === "+") return h("ins", {}, said(text));
    if (text.length <= 2 * LONG + 80) return said(text);
    const box = h("span", {}, said(text.slice(0, LONG)), button(`${whole(text.length - 2 * LONG)} equal characters`, () => box.replaceWith(said(text)), { class: "more" }), said(text.slice(-LONG)));
    return box;
  };
  return h("div", { class: "words" }, pieces.map(shown));
}

function settings({ settings: rows }) {
  if (!rows.length) return null;
  return h("section", {}, h("h2", {}, "Settings that differ"), h("table", { class: "grid" }, h("thead", {}, h("tr", {}, ["Setting", "A", "B"].map((label) => h("th", {}, label)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.name), h("td", { class: "mono" }, said(row.a || "–")), h("td", { class: "mono" }, said(row.b || "–")))))));
}
