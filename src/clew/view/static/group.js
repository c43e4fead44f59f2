// A group: its returns, whether they differ, and the merged graph of the states its runs went through.

import { get, name, plotting } from "./api.js";
import { button, h, loading, failure, notice, plain, put, said } from "./dom.js";
import { number, plural, signed, tail, whole } from "./format.js";
import { Graph } from "./graph.js";
import { dot, ending, runLink } from "./runrow.js";

export async function groupView(root, where) {
  put(root, loading("Reading the group"));
  const id = where.parts[0] ?? "";
  const method = where.query.get("method") ?? "";
  const [data] = await Promise.all([get(`group/${name(id)}`, { method }), plotting()]);
  return new GroupView(root, id, data).begin();
}

class GroupView {
  constructor(root, id, data) {
    Object.assign(this, { root, id, data, index: -1 });
    this.keys = {
      j: ["Next run", () => this.move(1)],
      k: ["Previous run", () => this.move(-1)],
      enter: ["Open it", () => this.open()],
      f: ["Fork it at its last reply", () => this.open("?do=fork")],
      d: ["Compare it with the best run", () => this.diff()],
      l: ["Next transition of the graph", () => this.graph?.step(1)],
      h: ["Previous transition", () => this.graph?.step(-1)],
      z: ["Whole graph", () => this.graph?.fit()],
    };
  }

  begin() {
    const { group: g, runs, graph } = this.data;
    this.runs = [...runs].sort((a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity));
    this.method = h("select", { "aria-label": "Advantages of", on: { change: () => this.change() } });
    const methods = this.data.methods ?? [];
    put(this.method, methods.map((one) => h("option", { value: one, selected: one === (this.data.method ?? this.method.value) }, plain(one))));
    this.canvas = h("div", { class: "graph", role: "group", "aria-label": "State graph" });
    this.panel = h("section", { class: "edgepanel", "aria-live": "polite" });
    this.table = h("tbody", {}, this.runs.map((row, i) => this.row(row, i)));
    put(
      this.root,
      this.head(g),
      h("div", { class: "columns2" },
        h("section", { class: "middle", "aria-label": "State graph" },
          h("div", { class: "tools" }, h("h2", {}, "State graph"),
            methods.length ? h("label", {}, h("span", { class: "dim" }, "Advantages of "), this.method) : h("span", { class: "dim" }, "No method has valued these runs; `clew credit g2po` does."),
            (this.legend = h("span", { class: "legends" })), button("Whole graph", () => this.graph?.fit(), { class: "quiet" })),
          this.canvas),
        h("aside", { class: "side right", "aria-label": "Runs" }, this.panel,
          h("h2", {}, "Runs"), h("table", { class: "grid runs" }, h("thead", {}, h("tr", {}, ["Run", "Return", "Steps", "Tokens", "Stop"].map((label, i) => h("th", { class: i && i < 4 ? "num" : "" }, label)))), this.table))),
    );
    this.drawGraph(graph);
    return this;
  }

  close() {
    this.graph?.destroy();
  }

  head(g) {
    const fact = (label, ...value) => h("span", { class: "fact" }, h("span", { class: "dim" }, `${label} `), value);
    const interval = g.low === null || g.low === undefined ? "" : ` [${number(g.low, 2)}, ${number(g.high, 2)}]`;
    const signal = g.signal === null ? "not judged" : g.signal ? "returns differ" : "none: all returns are equal";
    return h("header", { class: "runhead" },
      h("div", { class: "title" }, h("h1", {}, "Group ", h("span", { class: "id" }, plain(g.group))), h("span", { class: "prompt" }, said(g.name || "")),
        h("span", { class: "actions" }, h("a", { class: "button", href: `#/runs?q=${encodeURIComponent(`group=${g.group}`)}` }, "As a list"))),
      h("div", { class: "facts", tabindex: 0, role: "group", "aria-label": "Facts" }, fact("task", said(g.task)), fact("world", said((g.world ?? "").split("(")[0])), fact("model", said(tail(g.model))), fact("kind", g.kind),
        fact("runs", whole(g.n)), fact("mean return", h("b", {}, number(g.mean)), h("span", { class: "dim" }, interval)), fact("signal", signal)),
      dots(this.data.runs));
  }

  row(row, i) {
    return h("tr", { data: { i }, on: { click: (event) => event.target.closest("a") || this.select(i) } }, h("td", {}, dot(row), runLink(row.run)),
      h("td", { class: "num" }, number(row.reward)), h("td", { class: "num" }, whole(row.steps)), h("td", { class: "num" }, whole(row.tokens)), h("td", {}, ending(row)));
  }

  select(i) {
    this.index = Math.max(0, Math.min(this.runs.length - 1, i));
    for (const tr of this.table.children) tr.removeAttribute("aria-current");
    const tr = this.table.children[this.index];
    tr?.setAttribute("aria-current", "true");
    tr?.scrollIntoView({ block: "nearest" });
    this.graph?.trace(this.runs[this.index]?.run);
  }

  move(by) {
    this.select(this.index + by);
  }

  open(more = "") {
    const run = this.runs[Math.max(0, this.index)]?.run;
    if (run) location.hash = `#/run/${name(run)}${more}`;
  }

  diff() {
    const other = this.runs[Math.max(1, this.index)]?.run;
    if (other) location.hash = `#/diff/${name(this.runs[0].run)}/${name(other)}`;
  }

  async change() {
    try {
      this.data = await get(`group/${name(this.id)}`, { method: this.method.value });
      this.drawGraph(this.data.graph);
    } catch (error) {
      put(this.panel, failure(error));
    }
  }

  drawGraph(graph) {
    this.graph?.destroy();
    if (!graph?.nodes.length) {
      put(this.canvas, notice("No state graph", "The world of these runs names no states, or nothing was done in them."));
      put(this.panel);
      return;
    }
    this.graph = new Graph(this.canvas, graph, { edge: (edge) => this.edge(edge), node: (node) => this.node(node) });
    put(this.legend, this.graph.legend());
    put(this.panel, h("h2", {}, "Transition"), h("p", { class: "hint" }, "Choose an arrow, or press ", h("kbd", {}, "l"), ", to list the steps that took it."),
      graph.cut && h("p", { class: "hint" }, "More than 400 transitions: the most taken are drawn."));
  }

  /** Every step that took a transition, each a link to its place. */
  edge(edge) {
    const state = (id) => said(this.data.graph.nodes.find((node) => node.id === id)?.text || "(no text)", { class: "mono" });
    put(this.panel, h("h2", {}, "Transition"), h("p", { class: "mono did" }, said(edge.action)),
      h("dl", {}, h("div", {}, h("dt", {}, "taken"), h("dd", {}, plural(edge.count, "time"))), h("div", {}, h("dt", {}, `advantage${this.method.value ? ` (${plain(this.method.value)}, mean)` : ""}`), h("dd", {}, signed(edge.value))),
        h("div", {}, h("dt", {}, "from"), h("dd", {}, state(edge.from))), h("div", {}, h("dt", {}, "to"), h("dd", {}, state(edge.to)))),
      h("h3", {}, plural(edge.steps.length, "step")),
      h("ol", { class: "steps" }, edge.steps.slice(0, 300).map((step) => h("li", {}, this.dotOf(step.run), runLink(step.run, `@${step.seq}`)))));
  }

  node(node) {
    put(this.panel, h("h2", {}, "State"), h("p", { class: "mono" }, said(node.text || "(no text)")),
      h("dl", {}, h("div", {}, h("dt", {}, "visits"), h("dd", {}, whole(node.visits))), h("div", {}, h("dt", {}, "mean return to go"), h("dd", {}, number(node.value))),
        h("div", {}, h("dt", {}, "key"), h("dd", { class: "mono key" }, plain(String(node.state))))));
  }

  dotOf(run) {
    const row = this.runs.find((one) => one.run === run);
    return row ? dot(row) : null;
  }
}

/** Returns on a line, one mark a run, with the mean. */
function dots(runs) {
  const known = runs.map((run) => run.reward).filter((reward) => reward !== null);
  if (!known.length) return null;
  const low = Math.min(0, ...known);
  const high = Math.max(1, ...known);
  const left = (value) => `${(100 * (value - low)) / (high - low)}%`;
  const mean = known.reduce((a, b) => a + b, 0) / known.length;
  const seen = new Map();
  const marks = runs.filter((run) => run.reward !== null).map((run) => {
    const nth = seen.get(run.reward) ?? 0;
    seen.set(run.reward, nth + 1);
    return h("a", { class: "mark", href: `#/run/${name(run.run)}`, "aria-label": `${plain(run.run)} return ${number(run.reward)}`, title: `${plain(run.run)}  ${number(run.reward)}`, style: { left: left(run.reward), "--nth": nth % 12 } }, dot(run));
  });
  return h("div", { class: "returns" }, h("span", { class: "end" }, number(low)), h("div", { class: "axis" }, h("i", { class: "mean", style: { left: left(mean) }, title: `mean ${number(mean)}` }), marks), h("span", { class: "end" }, number(high)));
}
