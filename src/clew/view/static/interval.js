// An estimate with its interval as a line.

import { h } from "./dom.js";

/** Shares lie on 0 to 1, else the axis is what holds the interval and 0, or from minus to plus `reach`. The numbers stand beside it. */
export function interval(estimate, low, high, kind = "", reach = null) {
  const share = low >= 0 && high <= 1;
  const pad = (Math.max(high, 0) - Math.min(low, 0)) * 0.08;
  const [from, to] = reach ? [-reach, reach] : share ? [0, 1] : [Math.min(low, 0) - pad, Math.max(high, 0) + pad];
  const left = (value) => `${(100 * (value - from)) / (to - from || 1)}%`;
  return h("span", { class: `interval ${kind}`, "aria-hidden": "true" }, h("i", { class: "nought", style: { left: left(0) } }),
    h("i", { class: "reach", style: { left: left(low), width: `${(100 * (high - low)) / (to - from || 1)}%` } }), h("i", { class: "point", style: { left: left(estimate) } }));
}
