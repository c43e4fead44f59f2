// A small chart of one metric: a curve for each training, thin as measured, thick as a running mean.

/* global d3 */
import { h, plain, put, said } from "./dom.js";
import { number } from "./format.js";

const EDGE = { right: 10, top: 8, bottom: 22 };

/** Means over up to `window` points around each; fewer at the ends. */
export function smooth(points, window) {
  return points.map(([x], i) => {
    const reach = Math.min(Math.floor(window / 2), i, points.length - 1 - i);
    const part = points.slice(i - reach, i + reach + 1);
    return [x, part.reduce((sum, [, y]) => sum + y, 0) / part.length];
  });
}

export class Chart {
  /** curves: [{name, colour, dash, points: [[step, value]]}]; equal ones are drawn as one. open(name, step) when a point is chosen. */
  constructor(root, title, open) {
    Object.assign(this, { root, title, open, curves: [], at: null });
    this.readout = h("span", { class: "readout", "aria-live": "polite" });
    this.canvas = h("div", { class: "canvas", tabindex: 0, role: "group" });
    this.legend = h("div", {});
    put(root, h("figcaption", {}, h("span", {}, plain(title)), this.readout), this.canvas, this.legend);
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.mark(null));
    this.canvas.addEventListener("click", (event) => {
      this.point(event);
      if (this.at) this.open(this.at.name, this.at.step);
    });
    this.sight = new ResizeObserver(() => this.draw());
    this.sight.observe(this.canvas);
  }

  destroy() {
    this.sight.disconnect();
  }

  show(curves) {
    const drawn = curves.filter((curve) => curve.points.length);
    const same = Map.groupBy(drawn, (curve) => JSON.stringify(curve.points));
    this.curves = [...same.values()].map((equal) => ({ ...equal[0], equal: equal.map((curve) => curve.name) }));
    const open = Boolean(this.legend.querySelector("[open]")); // a curve grows while it is looked at
    put(this.legend, this.curves.filter((curve) => curve.equal.length > 1).map((curve) => equalOnes(curve, open)));
    this.canvas.setAttribute("aria-label", `${plain(this.title)} of ${this.curves.map(called).join(", ")}; arrow keys move along it, enter opens the runs`);
    this.draw();
  }

  draw() {
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    put(this.canvas);
    if (!width || !this.curves.length) return;
    const all = this.curves.flatMap((curve) => curve.points);
    let [low, high] = d3.extent(all, ([, y]) => y);
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
    this.y = d3.scaleLinear().domain([low, high]).nice(4).range([height - EDGE.bottom, EDGE.top]);
    const show = labels(this.y, 4);
    const ticks = this.y.ticks(4);
    const left = Math.max(34, 10 + 6.2 * d3.max(ticks, (tick) => show(tick).length));
    this.x = d3.scaleLinear().domain(d3.extent(all, ([x]) => x)).range([left, width - EDGE.right]);
    const svg = d3.select(this.canvas).append("svg").attr("width", width).attr("height", height).attr("aria-hidden", "true");
    const steps = this.x.ticks(Math.max(2, Math.floor(width / 70))).filter(Number.isInteger);
    const lines = svg.append("g").attr("class", "axis");
    for (const tick of ticks) {
      lines.append("line").attr("x1", left).attr("x2", width - EDGE.right).attr("y1", this.y(tick)).attr("y2", this.y(tick));
      lines.append("text").attr("x", left - 6).attr("y", this.y(tick) + 3.5).attr("text-anchor", "end").text(show(tick));
    }
    for (const tick of steps) lines.append("text").attr("x", this.x(tick)).attr("y", height - 6).attr("text-anchor", "middle").text(tick);
    const line = d3.line().x(([x]) => this.x(x)).y(([, y]) => this.y(y));
    for (const curve of this.curves) {
      const window = curve.points.length > 12 ? 7 : 1;
      const path = (points, kind) => svg.append("path").attr("class", `curve ${kind}`).attr("d", line(points)).style("stroke", curve.colour).style("stroke-dasharray", kind === "raw" ? null : curve.dash);
      if (window > 1) path(curve.points, "raw");
      path(smooth(curve.points, window), "mean");
      if (curve.points.length < 30) svg.append("g").selectAll("circle").data(curve.points).enter().append("circle").attr("cx", ([x]) => this.x(x)).attr("cy", ([, y]) => this.y(y)).attr("r", 2.2).style("fill", curve.colour);
    }
    this.rule = svg.append("line").attr("class", "rule").attr("y1", EDGE.top).attr("y2", height - EDGE.bottom).style("display", "none");
    this.knob = svg.append("circle").attr("class", "knob").attr("r", 4).style("display", "none");
    if (this.at) this.mark(this.at);
  }

  /** The point nearest to the pointer. */
  point(event) {
    if (!this.x) return;
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    for (const curve of this.curves)
      for (const [step, value] of curve.points) {
        const far = Math.abs(this.x(step) - px) * 3 + Math.abs(this.y(value) - py);
        if (!best || far < best.far) best = { far, ...curve, step, value };
      }
    this.mark(best);
  }

  mark(at) {
    this.at = at;
    this.rule?.style("display", at ? null : "none");
    this.knob?.style("display", at ? null : "none");
    if (!at) {
      put(this.readout);
      return;
    }
    this.rule.attr("x1", this.x(at.step)).attr("x2", this.x(at.step));
    this.knob.attr("cx", this.x(at.step)).attr("cy", this.y(at.value)).style("fill", at.colour);
    put(this.readout, h("span", { class: "dim" }, `${called(at)} step ${at.step} `), h("b", {}, number(at.value)));
  }

  key(event) {
    const by = { ArrowRight: 1, l: 1, ArrowLeft: -1, h: -1 }[event.key];
    if (by) {
      event.preventDefault();
      event.stopPropagation();
      const curve = this.curves.find((one) => one.name === this.at?.name) ?? this.curves[0];
      if (!curve) return;
      const now = curve.points.findIndex(([step]) => step === this.at?.step);
      const next = Math.max(0, Math.min(curve.points.length - 1, now < 0 ? (by > 0 ? 0 : curve.points.length - 1) : now + by));
      const [step, value] = curve.points[next];
      this.mark({ ...curve, step, value });
    }
    if (event.key === "Enter" && this.at) {
      event.stopPropagation();
      this.open(this.at.name, this.at.step);
    }
  }
}

/** A curve by name, and how many others are the same. */
function called({ name, equal }) {
  return equal.length > 1 ? `${plain(name)} and ${equal.length - 1} equal` : plain(name);
}

/** The line of a legend that stands for curves that are the same. */
function equalOnes({ colour, equal }, open) {
  const names = equal.map((name, i) => [i ? ", " : "", said(name)]);
  return h("details", { class: "equal", open }, h("summary", {}, h("i", { class: "swatch", style: { background: colour } }), `${equal.length} equal curves`), names);
}

/** How ticks are written: with as many digits as tell them apart. */
function labels(scale, count) {
  const largest = d3.max(scale.domain(), Math.abs);
  const format = largest >= 1e4 || largest < 1e-3 ? d3.format(".1~e") : scale.tickFormat(count);
  return (value) => format(value).replaceAll("-", "−");
}
