// A run: the tree of its forks, its transcript, and what produced the Call or token that is selected.

import { get, listen, name } from "./api.js";
import { button, copy, h, later, loading, failure, put, said, toast } from "./dom.js";
import { batchStart, cursor, drawBatch, place } from "./call.js";
import { Finder } from "./finder.js";
import { FlowList } from "./flowlist.js";
import { ForkPanel } from "./fork.js";
import { Guide } from "./guide.js";
import { drawInspector, drawRun } from "./inspector.js";
import { LabelRow } from "./labelrow.js";
import { lastAsk, readCalls } from "./readcalls.js";
import { runHead } from "./runhead.js";
import { StepFiles } from "./stepfiles.js";
import { shadeBy, shadesOf, wantedShade } from "./shading.js";
import { Strip } from "./strip.js";
import { tokensOf } from "./tokens.js";
import { drawTree, forksAt } from "./tree.js";

const PAGE = 100; // Calls read at once
const TABS = ["Outline", "Transcript", "Inspect"];

export async function runView(root, where, store) {
  const at = cursor(where.parts[0] ?? "");
  put(root, loading("Reading the run"));
  const start = Math.floor((at.seq ?? 0) / PAGE) * PAGE;
  const first = readCalls(at.run, start, start + PAGE); // asked for together with the facts
  first.catch(() => {});
  const [facts] = await Promise.all([get(`run/${name(at.run)}`), store.known]);
  const view = new RunView(root, facts, store);
  await view.begin(at, where.query, { start, first });
  return view;
}

class RunView {
  constructor(root, facts, store) {
    Object.assign(this, { root, facts, store, run: facts.summary.run, seq: null, token: null });
    this.markdown = localStorage.getItem("markdown") !== "off";
    this.files = new StepFiles(this, (seqs) => this.redraw(seqs));
    this.guide = new Guide(this);
    this.keys = {
      j: ["Next Call", () => this.step(1)],
      k: ["Previous Call", () => this.step(-1)],
      n: ["Next reply of the model", () => this.step(1, "ask")],
      N: ["Previous reply of the model", () => this.step(-1, "ask")],
      l: ["Next token of the reply", () => this.stepToken(1)],
      h: ["Previous token", () => this.stepToken(-1)],
      ...this.guide.keys,
      ...this.files.keys,
      G: ["To its end", () => this.choose(this.total - 1, null, true)],
      enter: ["Look at the selected Call", () => this.setTab("Inspect")],
      f: ["Fork here", () => this.fork()],
      d: ["Compare with the run it was forked from, or with its first fork", () => this.diff()],
      g: ["Open its group", () => this.group()],
      v: ["Next value to shade by", () => this.nextShade()],
      w: ["Messages as they were written, or as their Markdown", () => this.toggleMarkdown()],
      a: ["Label it: then 1 to 5 for stars, a letter for a verdict, n for a note, Enter to save", () => this.labels.open()],
      c: ["Copy the place as clew fork takes it", () => copy(this.placeText())],
      esc: ["Close the fork panel", () => this.setPanel("inspect")],
    };
  }

  get total() {
    return this.list?.pages.total ?? this.facts.calls;
  }

  async begin(at, asked, early) {
    const action = asked.get("do");
    this.draw();
    this.forks = forksAt(this.facts.tree, this.run);
    this.list = new FlowList(this.transcript, {
      load: (start, stop) => {
        const { first } = early.start === start ? early : {};
        early.start = null;
        return first ?? readCalls(this.run, start, stop);
      },
      page: PAGE,
      draw: (call, i) => drawBatch(this.list.pages, i, this.context()),
      anchor: (i) => (this.list ? batchStart(this.list.pages, i) : i),
      failed: (error) => put(this.notes, failure(error)),
      arrived: (first, last) => this.files.read(first, last),
    });
    this.strip = new Strip(this.root.querySelector(".strip"), this.run, (seq) => this.choose(seq, null, true));
    this.guide.begin();
    this.setShade(wantedShade(this.facts, asked) ?? shadesOf(this.facts)[0] ?? "", false);
    this.tree();
    this.reloadFacts = later(250, () => this.readFacts());
    this.stops = [listen("runs", (data) => this.heard(data.rows)), listen("job", (job) => this.panel.heard(job))];
    await this.list.start(at.seq ?? 0);
    this.showStrip(); // after the transcript, which is looked at first
    this.guide.read();
    if (action === "fork" && at.seq === null) at.seq = await lastAsk(this.run, this.total);
    const chosen = this.choose(at.seq, at.token, at.seq !== null); // its record is read while keys are answered already
    if (action === "fork") chosen.then(() => this.fork());
    this.transcript.focus({ preventScroll: true });
  }

  close() {
    this.finder.leave();
    this.labels.leave();
    this.stops?.forEach((stop) => stop());
    this.list?.destroy();
    this.strip?.destroy();
    this.guide.close();
  }

  stay(where) {
    const at = cursor(where.parts[0] ?? "");
    if (where.view !== "run" || at.run !== this.run) return false;
    if (wantedShade(this.facts, where.query)) this.setShade(wantedShade(this.facts, where.query));
    this.choose(at.seq, at.token, true);
    return true;
  }

  draw() {
    this.head = h("header", { class: "runhead" });
    this.shader = h("select", { "aria-label": "Shade by", on: { change: () => this.setShade(this.shader.value) } });
    this.legend = h("span", { class: "legends" });
    this.finder = new Finder(this.run, () => this.seq, (seq) => this.choose(seq, null, true));
    this.transcript = h("div", { class: "transcript", tabindex: 0, role: "list", "aria-label": "Transcript" });
    this.notes = h("div", { class: "notes" });
    this.labels = new LabelRow(this);
    this.treeBox = h("nav", { class: "treebox", "aria-label": "Forks" });
    this.inspector = h("div", { class: "inspect" });
    this.forkBox = h("div", { class: "forkbox", hidden: true });
    this.side = h("aside", { class: "side right", "aria-label": "What produced it" }, this.inspector, this.forkBox);
    this.raw = button("Markdown", () => this.toggleMarkdown(), { class: "chip", "aria-pressed": String(this.markdown), title: "Show messages as their Markdown means them, or as they were written" });
    const bar = h("div", { class: "tools" }, h("label", {}, h("span", { class: "dim" }, "Shade by "), this.shader), this.legend, this.raw, this.finder.field);
    this.tabs = TABS.map((label) => button(label, () => this.setTab(label), { role: "tab" }));
    put(this.root, this.head, h("div", { class: "tabs", role: "tablist", "aria-label": "Parts" }, this.tabs),
      h("div", { class: "columns3" }, h("div", { class: "side left" }, this.guide.outlineBox, this.treeBox), h("section", { class: "middle", "aria-label": "Transcript" }, bar, h("div", { class: "strip" }), this.guide.timelineBox, this.guide.workingsBox, this.notes, this.files.gone, this.labels.box, this.transcript), this.side));
    this.panel = new ForkPanel(this.forkBox, this.store, { close: () => this.setPanel("inspect"), path: (seq) => this.callAt(seq) });
    this.setTab("Transcript");
    this.drawHead();
  }

  drawHead() {
    put(this.head, runHead(this.facts.summary, this.facts.prompt, this.store.can_fork && (() => this.fork()), () => this.diff(), () => this.group(), this.guide.nearBox, this.files.any && (() => this.files.toFiles())));
  }

  context() {
    return {
      run: this.run, shade: this.shade, selected: this.seq, token: this.token, forks: this.forks, markdown: this.markdown, sought: this.finder.sought, labels: (seq) => this.labels.on(seq), files: (call) => this.files.draw(call),
      before: (call) => this.list.pages.at(call.seq - 1), choose: (seq, token) => this.choose(seq, token, false, true),
    };
  }

  redraw(seqs) {
    for (const seq of seqs) this.list.redraw(seq);
    this.list.render();
  }

  setShade(value, strip = true) {
    this.shade = shadeBy(value, this.facts, this.shader, this.legend);
    this.list?.redrawAll();
    if (strip) this.showStrip();
    if (this.detail) this.inspect();
  }

  toggleMarkdown() {
    localStorage.setItem("markdown", (this.markdown = !this.markdown) ? "on" : "off");
    this.raw.setAttribute("aria-pressed", String(this.markdown));
    this.list.redrawAll();
  }

  showStrip() {
    this.strip.show(this.shade, this.facts.calls).catch((error) => put(this.notes, failure(error)));
  }

  nextShade() {
    const all = [...shadesOf(this.facts), ""];
    this.setShade(all[(all.indexOf(this.shade?.name ?? "") + 1) % all.length]);
    toast(`Shaded by ${this.shade?.called ?? "nothing"}`);
  }

  tree() {
    drawTree(this.treeBox, this.facts.tree, this.run, (other) => (location.hash = `#/diff/${name(this.run)}/${name(other)}`));
  }

  /** Select a Call, or a token of its reply, and show what produced it. */
  async choose(seq, token = null, show = false, byHand = false) {
    const before = this.seq;
    if (seq !== null) seq = Math.max(0, Math.min(this.total - 1, seq));
    Object.assign(this, { seq, token });
    this.labels.aim();
    for (const i of new Set([before, seq])) if (i !== null) this.list.redraw(i);
    if (seq !== null && show) this.list.show(seq);
    else this.list.render();
    history.replaceState(null, "", seq === null ? `#/run/${name(this.run)}` : place(this.run, seq, token));
    this.strip.mark(seq);
    this.guide.mark(seq);
    if (byHand && matchMedia("(max-width: 700px)").matches && before === seq) this.setTab("Inspect");
    await this.inspect();
    if (!this.forkBox.hidden) this.panel.at(this.run, await this.callAt(seq), token);
  }

  async inspect() {
    const { seq, token } = this;
    if (seq === null) {
      drawRun(this.inspector, this.facts);
      return;
    }
    try {
      if (this.detail?.seq !== seq) this.detail = { seq, ...(await get(`run/${name(this.run)}/call/${seq}`)) };
      const call = await this.callAt(seq);
      if (this.seq === seq && this.token === token) drawInspector(this.inspector, this, call, this.detail);
    } catch (error) {
      put(this.inspector, failure(error));
    }
  }

  /** A Call of this run, read where it is not at hand. */
  async callAt(seq) {
    if (seq === null || seq < 0) return null;
    const at = this.list.pages.at(seq);
    return at ?? (await readCalls(this.run, seq, seq + 1)).rows[0] ?? null;
  }

  async step(by, kind = null) {
    let seq = this.seq === null ? (by > 0 ? 0 : this.total - 1) : this.seq + by;
    for (let tries = 0; kind && tries < 200 && seq >= 0 && seq < this.total; tries++, seq += by)
      if ((await this.callAt(seq))?.kind === kind) break;
    if (seq >= 0 && seq < this.total) this.choose(seq, null, true);
  }

  async stepToken(by) {
    const call = await this.callAt(this.seq);
    const count = call ? tokensOf(call).length : 0;
    if (!count) return;
    const next = this.token === null ? (by > 0 ? 0 : count - 1) : this.token + by;
    this.choose(this.seq, Math.max(0, Math.min(count - 1, next)), true);
  }

  placeText() {
    return this.seq === null ? this.run : `${this.run}@${this.seq}${this.token ? `+${this.token}` : ""}`;
  }

  async fork() {
    if (!this.store.can_fork) {
      toast("This server does not fork: it was started read-only");
      return;
    }
    if (this.seq === null) await this.choose(await lastAsk(this.run, this.total), null, true);
    this.setPanel("fork");
    this.panel.at(this.run, await this.callAt(this.seq), this.token);
    this.panel.focus();
  }

  setPanel(which) {
    this.forkBox.hidden = which !== "fork";
    this.inspector.hidden = which === "fork";
    if (which === "fork") this.setTab("Inspect");
    else this.transcript.focus({ preventScroll: true });
  }

  setTab(label) {
    this.root.dataset.tab = label;
    for (const tab of this.tabs) tab.setAttribute("aria-selected", String(tab.textContent === label));
    this.list?.render();
  }

  diff() {
    const parent = this.facts.summary.parent.split("@")[0];
    const other = parent || this.facts.tree.find((one) => one.run !== this.run)?.run;
    if (other) location.hash = `#/diff/${name(parent ? other : this.run)}/${name(parent ? this.run : other)}`;
    else toast("Nothing to compare with: fork it, or mark two runs of the list with d");
  }

  group() {
    if (this.facts.summary.group) location.hash = `#/group/${name(this.facts.summary.group)}`;
    else toast("This run belongs to no group");
  }

  /** This run went on, or a run of its family did. */
  heard(rows) {
    const family = new Set(this.facts.tree.map((one) => one.run));
    if (!rows.some((row) => family.has(row.run) || family.has((row.parent || "").split("@")[0]))) return;
    if (rows.some((row) => row.run === this.run) && !this.facts.summary.stop) this.follow();
    this.reloadFacts();
  }

  async follow() {
    const end = this.list.atEnd;
    await this.list.pages.grow();
    if (end) this.transcript.scrollTop = this.transcript.scrollHeight;
  }

  async readFacts() {
    this.facts = await get(`run/${name(this.run)}`).catch(() => this.facts);
    if (this.shader.options.length <= shadesOf(this.facts).length) this.setShade(this.shade?.name ?? shadesOf(this.facts)[0], false); // a live run's first reply
    this.forks = forksAt(this.facts.tree, this.run);
    this.drawHead();
    this.tree();
    this.list.redrawAll();
    this.showStrip();
    this.guide.read();
    if (this.seq === null) this.inspect();
  }
}
