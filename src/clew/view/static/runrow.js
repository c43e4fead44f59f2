// One line of the list of runs, and one of the list of groups.

import { h, plain, said } from "./dom.js";
import { counted, crashed, money, moment, number, plural, seconds, tail, verdict, when, whole } from "./format.js";
import { labelTags } from "./labels.js";

export const RUN_COLUMNS = [
  { kind: "run", label: "Run" },
  { kind: "created", label: "Made", sort: "created" },
  { kind: "task", label: "Task", sort: "task" },
  { kind: "world", label: "World", sort: "world" },
  { kind: "agent", label: "Agent", sort: "agent" },
  { kind: "model", label: "Model", sort: "model" },
  { kind: "reward", label: "Return", sort: "return" },
  { kind: "steps", label: "Steps", sort: "steps" },
  { kind: "tokens", label: "Tokens", sort: "tokens", title: "Tokens sampled" },
  { kind: "cost", label: "Cost", sort: "cost", title: "US dollars" },
  { kind: "seconds", label: "Time", sort: "seconds", title: "Wall time of its own Calls" },
  { kind: "stop", label: "Stop", sort: "stop", title: "Why it ended" },
  { kind: "tags", label: "Labels", sort: "stars", title: "Tags, and what people say of the run; sorts by the mean of its stars" },
];

export const GROUP_COLUMNS = [
  { kind: "run", label: "Group" },
  { kind: "created", label: "Made" },
  { kind: "task", label: "Task" },
  { kind: "world", label: "World" },
  { kind: "model", label: "Model" },
  { kind: "n", label: "Runs" },
  { kind: "mean", label: "Mean return", title: "With a 95 % interval, t over its runs" },
  { kind: "spread", label: "Returns of its runs" },
  { kind: "signal", label: "Signal", title: "Whether returns differ: without a difference a group teaches nothing" },
  { kind: "tags", label: "Name" },
];

/** A dot that says by colour and by shape how a run stands. */
export function dot(row) {
  const kind = verdict(row);
  const label = { good: "succeeded", bad: "failed", crash: "crashed", none: "not judged", open: "running" }[kind];
  return h("span", { class: `dot ${kind}`, title: label, role: "img", "aria-label": label });
}

export function runLink(run, place = "") {
  return h("a", { class: "id", href: `#/run/${encodeURIComponent(run)}${place}` }, plain(run) + place);
}

/** How a run ended, in red where it broke. */
export function ending(row) {
  const text = row.stop ? row.stop.replaceAll("_", " ") : "running";
  return crashed(row) ? h("span", { class: "broke" }, text) : text;
}

export function runRow(row, { fresh = false, marked = false } = {}) {
  const cell = (kind, ...body) => h("span", { class: `c-${kind}` }, body);
  const text = (kind, value, whole = value) => h("span", { class: `c-${kind}`, title: plain(whole || "") }, said(value || ""));
  return h(
    "div",
    { class: `row run ${fresh ? "fresh" : ""} ${marked ? "marked" : ""} ${row.stop ? "" : "open"}`, id: `r-${row.run}` },
    cell("run", dot(row), runLink(row.run)),
    h("time", { class: "c-created", title: moment(row.created) }, when(row.created)),
    text("task", row.task),
    text("world", row.world.split("(")[0], row.world),
    text("agent", tail(row.agent), row.agent),
    text("model", tail(row.model), row.model),
    cell("reward", number(row.reward)),
    cell("steps", whole(row.steps)),
    cell("tokens", counted(row.tokens)),
    h("span", { class: `c-cost ${row.cost ? "" : "nil"}` }, money(row.cost)),
    cell("seconds", seconds(row.seconds)),
    cell("stop", ending(row)),
    h("span", { class: "c-tags" }, row.parent && h("span", { class: "tag fork", title: plain(`fork of ${row.parent}`) }, "fork"),
      (row.tags ?? []).map((tag) => h("span", { class: "tag" }, said(tag))), labelTags(row.labels), row.name && h("span", { class: "dim" }, said(row.name))),
  );
}

export function groupRow(row) {
  const cell = (kind, ...body) => h("span", { class: `c-${kind}` }, body);
  const text = (kind, value, whole = value) => h("span", { class: `c-${kind}`, title: plain(whole || "") }, said(value || ""));
  const href = row.run ? `#/run/${encodeURIComponent(row.run)}` : `#/group/${encodeURIComponent(row.group)}`;
  const interval = row.low === null || row.low === undefined ? "" : ` [${number(row.low, 2)}, ${number(row.high, 2)}]`;
  return h(
    "div",
    { class: "row group", id: `g-${row.group || row.run}` },
    h("span", { class: "c-run" }, h("a", { class: "id", href }, plain(row.run || row.group))),
    h("time", { class: "c-created", title: moment(row.created) }, when(row.created)),
    text("task", row.task),
    text("world", (row.world || "").split("(")[0], row.world),
    text("model", tail(row.model), row.model),
    h("span", { class: "c-n", title: `${row.ended} of ${row.n} ended` }, row.ended < row.n ? `${row.ended}/${row.n}` : whole(row.n)),
    cell("mean", number(row.mean), h("span", { class: "dim" }, interval)),
    cell("spread", spread(row.rewards ?? [])),
    h("span", { class: "c-signal" }, row.n < 2 || row.signal === null || row.signal === undefined ? "" : row.signal ? "yes" : h("span", { class: "dim" }, "none")),
    h("span", { class: "c-tags" }, row.broken > 0 && h("span", { class: "tag bad" }, `${whole(row.broken)} crashed`), row.kind && row.kind !== "iid" && h("span", { class: "tag" }, row.kind), h("span", { class: "dim" }, said(row.name || ""))),
  );
}

/** The returns of a group as a row of small squares, one a run; many runs as counts. */
export function spread(rewards) {
  if (rewards.length > 16) {
    const good = rewards.filter((reward) => reward > 0.5).length;
    return h("span", {}, `${plural(good, "run")} above 0.5 of ${whole(rewards.length)}`);
  }
  const squares = rewards.map((reward) => {
    const kind = reward === null ? "none" : reward > 0.5 ? "good" : "bad";
    return h("i", { class: kind });
  });
  return h("span", { class: "spread", role: "img", "aria-label": `returns ${rewards.map((r) => number(r)).join(", ")}` }, squares);
}
