// The commitment curve of an audit: how much of the outcome is settled after each share of the thinking.

import { get, name } from "./api.js";
import { h, loading, plain, put, said, svg } from "./dom.js";
import { number, plural, whole } from "./format.js";
import { interval } from "./interval.js";

const CURVES = {
  settled: ["settled", "var(--c1)", null],
  flip: ["two samples differ", "var(--c2)", "7 4"],
  risk: ["closed there, changes", "var(--c4)", "2 4"],
};
const [MOST, HEIGHT] = [680, 260];
const EDGE = { left: 40, right: 26, top: 10, bottom: 34 };
const FEW = 60; // runs that are linked

export async function earlyView(root, where) {
  put(root, loading("Reading the audit"));
  const data = await get(`early/${name(where.parts[0] ?? "")}`);
  const known = Object.keys(CURVES).filter((one) => data.curves[one]);
  const head = h("header", { class: "runhead" }, h("div", { class: "title" }, h("h1", {}, "Commitment curve"), h("span", { class: "prompt" }, data.verdict ? said(data.verdict.claim) : plain(data.label)),
    h("a", { class: "button", href: `#/reports?q=${name(data.label)}` }, "Reports")));
  put(root, head, h("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Commitment curve" }, h("div", { class: "feature" }, verdict(data.verdict),
    h("figure", { class: "commitment" }, drawn(data.curves, known, Math.min(MOST, root.clientWidth - 20)), h("figcaption", {}, known.map(legend))), table(data.curves, known), figures(data.reports), runs(data.runs))));
  return { keys: {} };
}

function verdict(it) {
  if (!it) return null;
  const [kind, outcome] = [it.claim.split(":")[0], it.claim.split(":").slice(1).join(":")];
  return h("section", {}, h("p", { class: "verdict" }, h("b", {}, said(kind)), ": ", said(it.design)), h("p", { class: "hint" }, "The outcome is ", said(outcome.trim()), "."),
    it.caveats.length > 0 && h("ul", { class: "caveats" }, it.caveats.map((one) => h("li", {}, said(one)))));
}

const legend = (one) => h("span", {}, svg("svg", { width: 30, height: 8, "aria-hidden": "true" }, stroke(svg("line", { x1: 0, x2: 30, y1: 4, y2: 4, "stroke-width": 2 }), one)), ` ${CURVES[one][0]}`);

function stroke(el, one) {
  el.style.stroke = CURVES[one][1];
  if (CURVES[one][2]) el.setAttribute("stroke-dasharray", CURVES[one][2]);
  return el;
}

function drawn(curves, known, width) {
  const all = known.flatMap((one) => curves[one]);
  const far = Math.max(1, ...all.map((point) => point.at));
  const low = Math.max(-0.5, Math.min(0, ...all.map((point) => point.low)));
  const x = (at) => EDGE.left + (at / far) * (width - EDGE.left - EDGE.right);
  const y = (value) => EDGE.top + ((1 - Math.max(low, Math.min(1, value))) / (1 - low)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const words = known.map((one) => `${CURVES[one][0]}: ${curves[one].map((point) => `${percent(point.at)} ${number(point.estimate, 2)}`).join(", ")}`);
  const el = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `After each share of the thinking, ${words.join("; ")}` });
  const axis = svg("g", { class: "axis" });
  for (const value of [low < 0 ? low : null, 0, 0.25, 0.5, 0.75, 1].filter((one) => one !== null)) {
    axis.append(svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: y(value), y2: y(value) }));
    axis.append(svg("text", { x: EDGE.left - 6, y: y(value) + 4, "text-anchor": "end" }, number(value, 2)));
  }
  const places = [...new Set(all.map((point) => point.at))];
  for (const at of places) axis.append(svg("text", { x: x(at), y: HEIGHT - 18, "text-anchor": "middle" }, percent(at)));
  axis.append(svg("text", { x: (EDGE.left + width - EDGE.right) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, "share of the thinking that is kept"));
  el.append(axis);
  for (const one of [...known].reverse()) {
    const points = curves[one];
    const band = svg("polygon", { class: "band", points: [...points.map((p) => `${x(p.at)},${y(p.high)}`), ...[...points].reverse().map((p) => `${x(p.at)},${y(p.low)}`)].join(" ") });
    band.style.fill = CURVES[one][1];
    el.append(band, stroke(svg("polyline", { class: "line", points: points.map((p) => `${x(p.at)},${y(p.estimate)}`).join(" ") }), one));
    for (const point of points) {
      const dot = svg("circle", { cx: x(point.at), cy: y(point.estimate), r: 3.5 }, svg("title", {}, `${CURVES[one][0]}, ${percent(point.at)}: ${shown(point)}`));
      dot.style.fill = CURVES[one][1];
      el.append(dot);
    }
  }
  return el;
}

const percent = (at) => (at <= 1 ? `${number(100 * at, 1)} %` : whole(at));
const shown = (point) => `${number(point.estimate, 2)} [${number(point.low, 2)}, ${number(point.high, 2)}]`;

/** The same in words. */
function table(curves, known) {
  const places = [...new Set(known.flatMap((one) => curves[one].map((point) => point.at)))].sort((a, b) => a - b);
  const cell = (one, at) => {
    const point = curves[one].find((it) => it.at === at);
    return h("td", { class: "num", title: plain(point?.design ?? "") }, point ? shown(point) : "");
  };
  const n = curves[known[0]][0].n;
  return h("section", {}, h("h2", {}, "In numbers"), h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Curves in numbers" }, h("table", { class: "grid places" }, h("thead", {}, h("tr", {}, h("th", {}, "Thinking kept"), known.map((one) => h("th", { class: "num" }, CURVES[one][0])))),
    h("tbody", {}, places.map((at) => h("tr", {}, h("th", { scope: "row" }, percent(at)), known.map((one) => cell(one, at))))))),
    h("p", { class: "hint" }, `${plural(n, "prompt")}; intervals are bootstraps over prompts at 95 %. Settled is 1 less the chance that two samples from there differ, against the same before all thinking.`));
}

function figures(reports) {
  if (!reports.length) return null;
  return h("section", {}, h("h2", {}, "Beside it"), h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Other figures" }, h("table", { class: "grid" }, h("tbody", {}, reports.map((it) =>
    h("tr", { title: plain(it.design) }, h("th", { scope: "row" }, said(it.claim)), h("td", { class: "num" }, number(it.estimate)), h("td", {}, interval(it.estimate, it.low, it.high), h("span", { class: "num" }, ` [${number(it.low)}, ${number(it.high)}]`)), h("td", { class: "num" }, `n = ${whole(it.n)}`)))))));
}

function runs(all) {
  if (!all.length) return null;
  return h("section", {}, h("h2", {}, "Runs that were sampled from"), h("p", { class: "links" }, all.slice(0, FEW).map((run) => [h("a", { class: "id", href: `#/run/${name(run)}?shade=early` }, plain(run)), " "]), all.length > FEW && h("span", { class: "dim" }, `and ${whole(all.length - FEW)} more`)));
}
