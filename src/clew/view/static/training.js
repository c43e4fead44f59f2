// Training: curves of any trainings over each other; from a point to its runs and rows, from a row to its cursor.

import { get, listen, name, plotting } from "./api.js";
import { Chart } from "./chart.js";
import { button, h, later, loading, failure, notice, plain, put, said } from "./dom.js";
import { number, plural, signed, whole } from "./format.js";
import { runLink } from "./runrow.js";

const COLOURS = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)"];
const DASHES = [null, "6 3", "2 3", "9 3 2 3", null, "6 3"];
/** What one wants to see first: how well it does, then how the fit goes, last how long things took. */
function rank(metric) {
  if (/(^|\/)(success|reward|return)/.test(metric)) return 0;
  if (/(^|\/)(loss|kl|entropy|grad|dead|variance|signal|clip)/.test(metric)) return 1;
  return /(^|\/|_)(seconds|cpu)/.test(metric) ? 3 : 2;
}

export async function trainingView(root, where) {
  put(root, loading("Reading trainings"));
  const [all] = await Promise.all([get("trainings"), plotting()]);
  return new TrainingView(root, all).begin(where);
}

class TrainingView {
  constructor(root, all) {
    Object.assign(this, { root, all, charts: [], data: new Map(), index: -1 });
    this.keys = {
      j: ["Next row", () => this.move(1)],
      k: ["Previous row", () => this.move(-1)],
      enter: ["Open it", () => this.open()],
      f: ["Fork at it", () => this.open("?do=fork")],
      l: ["Next step", () => this.stepBy(1)],
      h: ["Previous step", () => this.stepBy(-1)],
      esc: ["Close the rows", () => this.hideRows()],
    };
  }

  async begin(where) {
    if (!this.all.length) {
      put(this.root, notice("No training yet", "`clew quickstart` or `clew train` makes one; its curves grow here while it runs."));
      this.stops = [listen("training", () => this.restart(where))];
      return this;
    }
    const given = (where.parts[0] ?? "").split(",").filter(Boolean);
    this.chosen = given.length ? given : [this.all.at(-1).name];
    this.picker = h("fieldset", { class: "picker" }, h("legend", {}, "Trainings"));
    this.charting = h("div", { class: "charts" });
    this.rowBox = h("aside", { class: "rowspanel", "aria-label": "Rows of a step", tabindex: -1, hidden: true });
    put(this.root, h("header", { class: "runhead" }, h("div", { class: "title" }, h("h1", {}, "Training")), this.picker), h("div", { class: "columns2 wide" }, this.charting, this.rowBox));
    this.changed = later(600, (training) => this.read(training).then(() => this.draw()));
    this.stops = [listen("training", (event) => this.chosen.includes(event.name) && this.changed(event.name))];
    await this.load();
    const step = where.query.get("step");
    if (step !== null) await this.rows(this.chosen[0], Number(step));
    return this;
  }

  async restart(where) {
    this.all = await get("trainings");
    this.close();
    if (this.all.length) this.begin(where);
  }

  close() {
    this.stops?.forEach((stop) => stop());
    this.charts.forEach((chart) => chart.destroy());
  }

  stay(where) {
    const given = (where.parts[0] ?? "").split(",").filter(Boolean);
    if (where.view !== "training" || given.join() !== this.chosen?.join()) return false;
    return true;
  }

  pick() {
    const boxes = this.all.map(({ name: training, steps }) => {
      const on = this.chosen.includes(training);
      const swatch = h("i", { class: "swatch", style: { background: on ? this.colour(training) : "transparent" } });
      const box = h("input", { type: "checkbox", checked: on, on: { change: () => this.toggle(training) } });
      return h("label", {}, box, swatch, said(training), h("span", { class: "dim" }, ` ${plural(Array.isArray(steps) ? steps.length : steps, "step")}`));
    });
    put(this.picker, h("legend", {}, "Trainings"), boxes);
  }

  colour(training) {
    return COLOURS[this.chosen.indexOf(training) % COLOURS.length];
  }

  toggle(training) {
    this.chosen = this.chosen.includes(training) ? this.chosen.filter((one) => one !== training) : [...this.chosen, training];
    history.replaceState(null, "", `#/training/${this.chosen.map(name).join(",")}`);
    this.load();
  }

  async read(training) {
    this.data.set(training, await get(`training/${name(training)}`));
  }

  async load() {
    this.pick();
    try {
      await Promise.all(this.chosen.filter((one) => !this.data.has(one)).map((one) => this.read(one)));
      this.draw();
    } catch (error) {
      put(this.charting, failure(error));
    }
  }

  /** One chart a metric, the ones that say how it goes first. */
  draw() {
    const metrics = new Set();
    for (const training of this.chosen) for (const metric of Object.keys(this.data.get(training).metrics)) metrics.add(metric);
    const sorted = [...metrics].sort((a, b) => rank(a) - rank(b));
    const wanted = sorted.join("\n");
    if (this.drawn !== wanted) {
      this.charts.forEach((chart) => chart.destroy());
      const figures = sorted.map(() => h("figure", {}));
      this.charts = sorted.map((metric, i) => new Chart(figures[i], metric, (training, step) => this.rows(training, step)));
      put(this.charting, figures.length ? figures : notice("Nothing measured yet", "The first step of the training writes its metrics."));
      this.drawn = wanted;
    }
    for (const chart of this.charts) chart.show(this.chosen.map((training, i) => this.curve(training, chart.title, i)));
  }

  curve(training, metric, i) {
    const { steps, metrics } = this.data.get(training);
    const points = steps.map((step, k) => [step, metrics[metric]?.[k]]).filter(([, value]) => value !== null && value !== undefined);
    return { name: training, colour: this.colour(training), dash: DASHES[i % DASHES.length], points };
  }

  stepBy(by) {
    const training = this.at?.training ?? this.chosen[0];
    const steps = this.data.get(training)?.steps ?? [];
    const now = steps.indexOf(this.at?.step);
    const next = steps[now < 0 ? (by > 0 ? 0 : steps.length - 1) : now + by];
    if (next !== undefined) this.rows(training, next);
  }

  hideRows() {
    this.rowBox.hidden = true;
  }

  /** The rows of a step: the replies that were trained on there, each a cursor, and the groups they came from. */
  async rows(training, step) {
    this.at = { training, step };
    this.index = -1;
    this.rowBox.hidden = false;
    put(this.rowBox, loading("Reading rows"));
    this.rowBox.focus({ preventScroll: true });
    history.replaceState(null, "", `#/training/${this.chosen.map(name).join(",")}?step=${step}`);
    try {
      const { rows } = await get(`training/${name(training)}/rows`, { step });
      if (this.at.training === training && this.at.step === step) this.drawRows(training, step, rows);
    } catch (error) {
      put(this.rowBox, failure(error));
    }
  }

  drawRows(training, step, rows) {
    const groups = this.data.get(training)?.iterations?.[step] ?? [];
    const shown = rows.slice(0, 500);
    this.rowRuns = shown;
    this.body = h("tbody", {}, shown.map((row) => h("tr", {}, h("td", {}, runLink(row.run, `@${row.seq}`)), h("td", { class: "num" }, number(row.reward)),
      h("td", { class: "num" }, signed(row.value)), h("td", { class: "num" }, whole(row.tokens)), h("td", { class: "mono text" }, said(row.text ?? "")))));
    const head = h("tr", {}, ["Cursor", "Return", "Value", "Tokens", "Reply"].map((label, i) => h("th", { class: i && i < 4 ? "num" : "" }, label)));
    const runs = new Set(rows.map((row) => row.run)).size;
    put(this.rowBox, h("h2", {}, said(training), ` step ${step}`, button("Close", () => this.hideRows(), { class: "quiet" })),
      h("p", { class: "hint" }, `${plural(rows.length, "row")} of ${plural(runs, "run")}`, rows.length > shown.length ? `, the first ${shown.length} shown` : ""),
      groups.length > 0 && h("p", { class: "groups" }, h("span", { class: "dim" }, "groups "), groups.map((group) => h("a", { class: "id", href: `#/group/${name(group)}` }, plain(group)))),
      rows.length ? h("div", { class: "scroll" }, h("table", { class: "grid" }, h("thead", {}, head), this.body)) : notice("No rows at this step", "Its runs may have been removed from the store, or none of its groups had a signal."));
  }

  move(by) {
    if (!this.body) return;
    this.body.children[this.index]?.removeAttribute("aria-current");
    this.index = Math.max(0, Math.min(this.body.children.length - 1, this.index + by));
    this.body.children[this.index]?.setAttribute("aria-current", "true");
    this.body.children[this.index]?.scrollIntoView({ block: "nearest" });
  }

  open(more = "") {
    const row = this.rowRuns?.[this.index];
    if (row) location.hash = `#/run/${name(row.run)}@${row.seq}${more}`;
  }
}
