// Who worked at a run of several models: the parts of a plan by when they can be worked on, and a router's choices.

import { get, name } from "./api.js";
import { button, h, plain, put, said } from "./dom.js";
import { money, plural, seconds, whole } from "./format.js";

const COLOURS = 6;
const STATES = { done: "", nobody: "nobody answered", open: "not yet", cut: "cut off" };

export class Workings {
  /** jump(seq) goes to a Call; `any` says whether the run has something to show. */
  constructor(root, run, jump) {
    Object.assign(this, { root, run, jump });
    this.root.hidden = true;
  }

  async read(any) {
    if (!any) return;
    const { plans, lead, said: lines, routed } = await get(`run/${name(this.run)}/workings`);
    const open = this.root.querySelector("details")?.open ?? true;
    const body = [lines.map((line) => h("p", { class: "hint" }, said(line))), plans.map((plan) => this.plan(plan)), routed.steps.length > 0 && this.routed(routed)];
    const title = plans.length ? [plural(plans.length, "plan"), lead && h("span", { class: "dim" }, ` planning took ${spent(lead)}`)] : ["Who answered"];
    put(this.root, h("details", { open }, h("summary", {}, title), h("div", { class: "workings-body", tabindex: 0, role: "group", "aria-label": "Who worked" }, body)));
    this.root.hidden = false;
    this.mark(this.seq ?? null);
  }

  /** A plan: a column for each level, so that parts in one column are worked on side by side. */
  plan({ place, parts, seq }) {
    const levels = [...new Set(parts.map((part) => part.level))].sort((a, b) => a - b);
    const column = (level) => {
      const here = parts.filter((part) => part.level === level);
      return h("div", { class: "level", role: "group", "aria-label": here.length > 1 ? `${here.length} parts side by side` : "one part" }, here.map((part) => this.part(part)));
    };
    const inner = place.match(/s(\d+)w\d+$/);
    const title = inner ? `Plan within part ${inner[1]}` : `Plan ${Number(place.match(/^w(\d+)$/)?.[1] ?? 0) + 1}`;
    return h("section", { class: "plan" }, h("h3", {}, button(title, () => this.jump(seq), { class: "quiet" })), h("div", { class: "levels" }, levels.map(column)));
  }

  part(part) {
    const other = part.by && part.by !== part.worker;
    const state = other ? `instead of ${plain(part.worker)}` : STATES[part.state] || (part.plans ? "planned again" : "");
    const reads = part.reads.length ? `reads ${part.reads.join(", ")}` : "";
    const facts = [reads, part.asks.length > 0 && spent(part)].filter(Boolean).join(" · ");
    const first = part.asks[0];
    const head = [h("span", { class: "number" }, String(part.at)), " ", h("b", { title: plain(other ? part.by : part.worker) }, said(other ? part.by : part.worker)), " ", state && h("span", { class: `tag ${part.state === "done" ? "" : "warn"}` }, state)];
    const title = first === undefined ? h("span", { class: "who" }, head) : button(head, () => this.jump(first), { class: "quiet who", title: `to Call ${first}` });
    return h("div", { class: `part-card ${part.state}`, data: { asks: part.asks.join(" ") } }, title,
      h("p", { class: "subtask", title: plain(part.subtask) }, said(part.subtask)), h("p", { class: "dim" }, facts, part.classes.length > 0 && h("span", { class: "tag" }, said(part.classes.join(", ")))),
      part.said.map((line) => h("p", { class: "hint" }, said(line))));
  }

  /** A router's workers, and a square for each of its Calls in the colour of who answered. */
  routed({ workers, steps, more }) {
    const colour = new Map(workers.map((worker, i) => [worker.name, i % COLOURS + 1]));
    const letter = new Map(workers.map((worker, i) => [worker.name, i < 26 ? String.fromCharCode(65 + i) : String(i)]));
    const row = (worker) => h("tr", {}, h("td", {}, mark(worker.name), " ", said(worker.name)), h("td", { class: "num" }, whole(worker.answers)),
      h("td", { class: "num" }, worker.answers ? whole(worker.tokens) : ""), h("td", { class: "num" }, worker.answers ? money(worker.cost) : ""), h("td", { class: "num" }, worker.answers ? seconds(worker.seconds) : ""),
      h("td", { class: "dim" }, worker.refused > 0 && `not asked ${times(worker.refused)}`, worker.failed > 0 && ` failed ${times(worker.failed)}`, worker.why && [": ", said(worker.why)]));
    const mark = (who) => h("span", { class: `worker-mark c${colour.get(who) ?? 1}`, "aria-hidden": "true" }, letter.get(who) ?? "?");
    const step = (one) => button(letter.get(one.worker) ?? "?", () => this.jump(one.seq), {
      class: `worker-mark c${colour.get(one.worker) ?? 1}`, data: { asks: String(one.seq) }, title: plain(`@${one.seq} ${one.lines.join("\n")}`), "aria-label": `${letter.get(one.worker) ?? "?"}: Call ${one.seq}, ${plain(one.worker)}` });
    const head = ["Worker", "answers", "tokens", "cost", "time", ""].map((label, i) => h("th", { class: i > 0 && i < 5 ? "num" : "" }, label));
    return [h("table", { class: "grid" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, workers.map(row))),
      h("div", { class: "trace", role: "group", "aria-label": "Who answered each Call" }, steps.map(step), more > 0 && h("span", { class: "dim" }, `and ${whole(more)} more`))];
  }

  /** Show which part, or which of a router's answers, the selected Call belongs to. */
  mark(seq) {
    this.seq = seq;
    for (const el of this.root.querySelectorAll("[data-asks]")) el.classList.toggle("here", seq !== null && el.dataset.asks.split(" ").includes(String(seq)));
  }
}

const times = (count) => (count === 1 ? "once" : `${whole(count)} times`);
const spent = ({ tokens, cost, seconds: took }) => [`${whole(tokens)} tok`, cost > 0 && money(cost), took > 0 && seconds(took)].filter(Boolean).join(" · ");
