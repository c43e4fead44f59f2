// A fork that was asked for: how far it is, its branches, and how often they succeed.

import { button, failure, h, plain } from "./dom.js";
import { crashed, number, plural, share, whole } from "./format.js";
import { dot, ending } from "./runrow.js";

const OVER = ["done", "failed", "stopped"];

export function drawJob(job, parent, stop) {
  const over = OVER.includes(job.state);
  const broken = (job.runs ?? []).filter(crashed).length;
  const state = broken && broken === job.runs.length && job.state === "done" ? "crashed" : job.state;
  const count = broken ? `${job.done}/${job.n}, ${broken} crashed` : `${job.done}/${job.n}`;
  const rows = (job.runs ?? []).map((run) => h("tr", {},
    h("td", {}, dot(run), h("a", { class: "id", href: `#/run/${encodeURIComponent(run.run)}${job.at?.includes?.("@") ? `@${job.at.split("@")[1].split("+")[0]}` : ""}` }, plain(run.run))),
    h("td", { class: "num" }, number(run.reward)), h("td", { class: "num" }, `${whole(run.tokens)} tok`), h("td", {}, ending(run)),
    h("td", {}, h("a", { href: `#/diff/${encodeURIComponent(parent)}/${encodeURIComponent(run.run)}` }, "diff"))));
  return h("section", { class: `job ${state}`, data: { job: job.id } },
    h("header", {}, h("span", { class: "id" }, plain(job.at ? String(job.at) : "")), h("span", { class: `state ${over ? "" : "beat"} ${broken ? "warn" : ""}` }, `${state} ${count}`),
      !over && button("Stop", stop, { class: "quiet" }), job.group && over && h("a", { href: `#/group/${encodeURIComponent(job.group)}` }, "group")),
    !over && h("progress", { max: job.n, value: job.done, "aria-label": "Forks that ended" }),
    job.note && h("p", { class: "hint" }, plain(job.note)),
    job.rate && rate(job.rate),
    job.error && failure({ message: job.error, remedy: job.remedy }),
    rows.length > 0 && h("table", { class: "grid" }, h("tbody", {}, rows)));
}

/** A share with its interval: as numbers and as a line on the unit interval. */
export function rate({ estimate, low, high, n }) {
  const line = h("span", { class: "interval", "aria-hidden": "true" },
    h("i", { class: "reach", style: { left: `${100 * low}%`, width: `${100 * (high - low)}%` } }), h("i", { class: "point", style: { left: `${100 * estimate}%` } }));
  const text = `success ${share(estimate, 0)}  [${share(low, 0)}, ${share(high, 0)}]`;
  return h("div", { class: "rate" }, line, h("span", { class: "num" }, text), h("span", { class: "dim" }, ` 95 % (Wilson), ${plural(n, "run")}`));
}
