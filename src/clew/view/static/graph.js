// The merged state graph: nodes are states, as large as they were visited and coloured by their value; arrows are
// actions, as wide as they were taken and coloured by their advantage.

/* global d3 */
import { h, plain, put } from "./dom.js";
import { number, plural, signed } from "./format.js";
import { curve, layout } from "./layout.js";
import { colour } from "./tokens.js";

const KINDS = ["low", "mid", "high"];
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export class Graph {
  /** heard: {edge(edge), node(node)}, called when one is chosen. */
  constructor(root, data, heard) {
    Object.assign(this, { root, data, heard, index: -1 });
    this.nodes = data.nodes.map((node) => ({ ...node }));
    this.byId = new Map(this.nodes.map((node) => [node.id, node]));
    this.edges = data.edges.filter((edge) => this.byId.has(edge.from) && this.byId.has(edge.to)).map((edge) => ({ ...edge }));
    const visits = d3.max(this.nodes, (node) => node.visits) || 1;
    const radius = d3.scaleSqrt().domain([0, visits]).range([4, 15]);
    this.size = (node) => radius(node.visits);
    this.width = d3.scaleSqrt().domain([1, Math.max(2, d3.max(this.edges, (edge) => edge.count) || 1)]).range([1.3, 7]);
    const values = this.nodes.map((node) => node.value).filter((value) => value !== null);
    [this.low, this.high] = [Math.min(0, ...values), Math.max(...values, 0) || 1];
    this.reach = d3.max(this.edges, (edge) => Math.abs(edge.value ?? 0)) || 1;
    this.box = layout(this.nodes, this.edges, { width: root.clientWidth - 40, height: root.clientHeight - 60 });
    this.draw();
    this.sight = new ResizeObserver(() => this.fit());
    this.sight.observe(root);
  }

  destroy() {
    this.sight.disconnect();
  }

  valueOf(node) {
    return node.value === null ? null : (2 * (node.value - this.low)) / (this.high - this.low || 1) - 1;
  }

  side(value) {
    if (value === null || value === undefined || Math.abs(value) < this.reach * 0.02) return "mid";
    return value < 0 ? "low" : "high";
  }

  stroke(edge) {
    const much = edge.value === null ? 0 : Math.round(35 + 65 * Math.min(1, Math.abs(edge.value) / this.reach));
    const side = this.side(edge.value);
    return side === "mid" ? "var(--edge)" : `color-mix(in oklab, var(--${side}) ${much}%, var(--edge))`;
  }

  draw() {
    put(this.root);
    const svg = d3.select(this.root).append("svg").attr("width", "100%").attr("height", "100%").attr("role", "group").attr("aria-label", `${this.nodes.length} states and ${this.edges.length} transitions`);
    this.svg = svg;
    const heads = svg.append("defs").selectAll("marker").data(KINDS).enter().append("marker").attr("id", (kind) => `head-${kind}`);
    heads.attr("viewBox", "0 0 8 8").attr("refX", 4).attr("refY", 4).attr("markerUnits", "userSpaceOnUse").attr("markerWidth", 9).attr("markerHeight", 9).attr("orient", "auto");
    heads.append("path").attr("d", "M0,0.500 L8,4 L0,7.500 Z").attr("class", (kind) => `arrow ${kind}`);
    this.stage = svg.append("g");
    this.zoom = d3.zoom().scaleExtent([0.1, 4]).on("zoom", () => this.stage.attr("transform", d3.event.transform));
    svg.call(this.zoom).on("dblclick.zoom", null);
    this.lines = this.stage.append("g").selectAll("g").data(this.edges).enter().append("g").attr("class", "edge").attr("role", "button").attr("tabindex", -1)
      .attr("aria-label", (edge) => plain(`${edge.action}, taken ${plural(edge.count, "time")}, advantage ${signed(edge.value)}`));
    const seen = new Map();
    for (const edge of this.edges) {
      const pair = `${edge.from} ${edge.to}`;
      edge.nth = seen.get(pair) ?? 0;
      seen.set(pair, edge.nth + 1);
    }
    const path = (edge) => curve(this.byId.get(edge.from), this.byId.get(edge.to), this.size, edge.nth);
    this.lines.append("path").attr("class", "hit").attr("d", path);
    this.lines.append("path").attr("class", "line").attr("d", path).attr("marker-end", (edge) => `url(#head-${this.side(edge.value)})`)
      .style("stroke-width", (edge) => `${this.width(edge.count)}px`).style("stroke", (edge) => this.stroke(edge)).style("stroke-dasharray", (edge) => (this.side(edge.value) === "low" ? "7 3" : null));
    this.names();
    this.lines.append("title").text((edge) => plain(`${edge.action}\ntaken ${plural(edge.count, "time")}, advantage ${signed(edge.value)}`));
    this.lines.on("click", (edge, i) => this.choose(i)).on("keydown", (edge, i) => d3.event.key === "Enter" && this.choose(i));
    this.drawNodes();
  }

  /** Actions are written on the few arrows that matter most: far from 0 in advantage, and often taken. */
  names() {
    const weight = (edge) => Math.abs(edge.value ?? 0) / this.reach + 0.2 * Math.log1p(edge.count);
    const told = new Set([...this.edges].sort((a, b) => weight(b) - weight(a)).slice(0, this.edges.length > 60 ? 6 : 14));
    const taken = this.nodes.map((node) => [node.x - 16, node.y - 14, node.x + 16, node.y + 26]);
    this.lines.filter((edge) => told.has(edge)).append("text").attr("class", "name").text((edge) => cut(plain(edge.action), 22))
      .each(function () {
        const line = this.parentNode.querySelector(".line");
        const at = line.getPointAtLength(line.getTotalLength() / 2);
        const half = this.textContent.length * 3.1;
        const box = [at.x - half, at.y - 15, at.x + half, at.y - 3];
        if (taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) this.remove();
        else taken.push(box);
        this.setAttribute("x", at.x);
        this.setAttribute("y", at.y - 6);
      });
  }

  drawNodes() {
    const circles = this.stage.append("g").selectAll("g").data(this.nodes).enter().append("g")
      .attr("class", (node) => `node ${node.start ? "start" : ""} ${node.terminal ? "terminal" : ""}`).attr("transform", (node) => `translate(${node.x},${node.y})`).attr("tabindex", -1).attr("role", "button")
      .attr("aria-label", (node) => plain(`state ${node.text}, ${plural(node.visits, "visit")}, value ${number(node.value)}`));
    circles.filter((node) => node.terminal).append("circle").attr("class", "ring").attr("r", (node) => this.size(node) + 3);
    circles.append("circle").attr("class", "ground").attr("r", this.size);
    circles.append("circle").attr("class", "disc").attr("r", this.size).style("fill", (node) => (node.value === null ? "transparent" : colour(this.valueOf(node))));
    circles.append("text").attr("class", "value").attr("y", (node) => this.size(node) + 11).text((node) => (node.value === null ? "" : number(node.value, 2)));
    circles.append("title").text((node) => plain(`${node.text}\n${plural(node.visits, "visit")}, mean return to go ${number(node.value)}`));
    circles.on("click", (node) => this.heard.node(node));
    this.circles = circles;
  }

  choose(i) {
    this.index = i;
    this.lines.classed("chosen", (_, k) => k === i);
    this.heard.edge(this.edges[i]);
  }

  /** Another transition, most taken first. */
  step(by) {
    const ranked = this.edges.map((_, i) => i).sort((a, b) => this.edges[b].count - this.edges[a].count);
    const at = ranked.indexOf(this.index);
    this.choose(ranked[(at + by + ranked.length) % ranked.length] ?? 0);
  }

  /** Show the way of one run; the rest is dimmed. */
  trace(run) {
    const on = (edge) => !run || edge.steps.some((step) => step.run === run);
    this.lines.classed("off", (edge) => !on(edge));
  }

  fit() {
    const [width, height] = [this.root.clientWidth, this.root.clientHeight];
    if (!width || !height) return;
    const scale = Math.min(1.2, (width - 40) / this.box.width, (height - 60) / this.box.height);
    const shift = d3.zoomIdentity.translate((width - this.box.width * scale) / 2, (height - this.box.height * scale) / 2).scale(scale);
    this.svg.call(this.zoom.transform, shift);
  }

  legend() {
    const ramp = (label, low, high) => h("span", { class: "legend" }, h("span", { class: "dim" }, `${label} `), h("span", { class: "end" }, low),
      h("span", { class: "ramp" }, [-1, -0.6, -0.3, 0, 0.3, 0.6, 1].map((place) => h("i", { style: { "background-color": colour(place) } }))), h("span", { class: "end" }, high));
    return [ramp("value", number(this.low, 2), number(this.high, 2)), ramp("advantage (below 0 dashed)", `−${number(this.reach, 2)}`, `+${number(this.reach, 2)}`)];
  }
}
