// What each step of a run changed in its files: a line beside the Call, which opens the patch, and ways from one to the next.

import { get, name } from "./api.js";
import { button, failure, h, plain, put, said, toast } from "./dom.js";
import { plural } from "./format.js";
import { drawPatch, fileName, plusMinus } from "./patch.js";

/** The page of all files at a place, RUN@CALL or RUN; `path` names a file as the server wrote it. */
export function filesRoute(place, path = "", more = {}) {
  const query = new URLSearchParams({ ...(path ? { path } : {}), ...more });
  const search = String(query).replaceAll("%2F", "/").replaceAll("+", "%20");
  return `#/files/${part(place)}${search ? `?${search}` : ""}`;
}

/** The page of one file of a patch, at the place after it; null where there is none. */
export const fileRoute = (place, file) => (file.kind === "own" || file.kind === "d" || file.sign === "-" ? null : filesRoute(place, file.at));

/** The page that compares the files of two places. */
export const filesDiffRoute = (a, b, path = "") => filesRoute(a, path).replace(/(\?|$)/, `/${part(b)}$1`);
const part = (place) => name(place).replace("%40", "@");

/** Fill a select with the places of a run; that at hand is among them and is chosen, also where nothing changed there. */
export function choices(select, places, place, seq) {
  const all = places.some((one) => one.place === place) ? places : [...places, { place, seq }].sort((a, b) => (a.seq ?? Infinity) - (b.seq ?? Infinity));
  put(select, all.map((one) => h("option", { value: one.place }, one.seq === null ? "at the end" : `before call ${one.seq}`)));
  select.value = place;
}

export class StepFiles {
  /** view: the run's page; `redraw(seq)` draws a Call anew. */
  constructor(view, redraw) {
    Object.assign(this, { view, redraw, steps: new Map(), open: new Map(), places: [], ranges: [] });
    this.gone = h("p", { class: "hint filesgone", role: "status", hidden: true });
    this.keys = {
      u: ["What this step changed in the files: open or close", () => this.toggleChosen()],
      i: ["Next step that changed files", () => this.go(1)],
      I: ["Previous step that changed files", () => this.go(-1)],
      s: ["All files, as they stood before this Call", () => this.toFiles()],
    };
  }

  get any() {
    return this.view.facts.files;
  }

  /** Why files of this run cannot be shown; nothing where they can. */
  tell(why) {
    put(this.gone, plain(why));
    this.gone.hidden = !why;
  }

  /** Where in the run files changed; `told` hears once it is known. */
  async readPlaces(told) {
    if (!this.any) return;
    this.known = get(`run/${name(this.view.run)}/snapshots`);
    const { places, error, remedy } = await this.known;
    this.places = error ? [] : places;
    this.tell(error ? `${error}. ${remedy}` : "");
    told();
    const late = this.changed().filter((at) => !this.steps.has(at));
    for (const [start, stop] of this.ranges) if (late.some((at) => at >= start && at < stop)) await this.readSteps(start, stop);
  }

  /** Calls beside which files changed. */
  changed() {
    return this.places.filter((place) => place.changed).map((place) => place.at);
  }

  /** Calls are shown: read what their steps changed, now or once it is known where anything did. */
  async read(start, stop) {
    if (!this.ranges.some(([from, to]) => from === start && to === stop)) this.ranges.push([start, stop]);
    try {
      const known = await this.known;
      if (known && !known.error) await this.readSteps(start, stop);
    } catch (error) {
      this.tell(error.message);
    }
  }

  async readSteps(start, stop) {
    for (let from = start; from !== null && from < stop; ) {
      const { steps, next } = await get(`run/${name(this.view.run)}/changes`, { start: from, stop });
      for (const step of steps) this.steps.set(step.at, step);
      if (steps.length) this.redraw(steps.map((step) => step.at));
      from = next;
    }
  }

  /** The line beside a Call; null where nothing changed there. */
  draw(call) {
    const step = this.steps.get(call.seq);
    if (!step || step.files + step.folders + step.own?.length === 0) return null;
    if (step.note) return h("div", { class: "stepfiles" }, h("span", { class: "dim" }, said(step.note)));
    const open = this.open.get(call.seq);
    const toggle = button([h("span", { class: "caret", "aria-hidden": "true" }, open ? "▾" : "▸"), " ", counted(step)], () => this.toggle(call.seq), { class: "quiet changed", "aria-expanded": String(Boolean(open)) });
    const few = !open && h("span", { class: "few" }, step.names.map((path, i) => [i ? ", " : "", fileName(path)]), step.files > step.names.length && " …");
    const all = h("a", { href: filesRoute(step.b), title: "All files as they stood after this step" }, "All files");
    return h("div", { class: `stepfiles ${open ? "open" : ""}` }, h("div", { class: "stephead" }, toggle, plusMinus(step), few, all), open && this.body(open, call.seq));
  }

  body(open, seq) {
    const step = this.steps.get(seq);
    const again = (file, i) => async ({ whole }) => {
      const all = await get("files/patch", { a: step.a, b: step.b, path: file.at, whole: whole ? 1 : null });
      return (open.files[i] = { ...all, whole }); // it stays so when the Call is drawn anew
    };
    const files = open.files.map((file, i) => drawPatch(file, { href: fileRoute(step.b, file), again: again(file, i) }));
    const more = open.next !== null && h("div", { class: "patchrest" }, open.busy ? h("span", { class: "dim", role: "status" }, "Reading what changed …")
      : button(`Show ${plural(Math.min(open.total - open.files.length, 20), "more file")}`, () => this.load(seq), { class: "more" }), open.files.length > 0 && h("span", { class: "dim" }, ` ${open.files.length} of ${open.cut ? "more than " : ""}${open.total}`));
    return h("div", { class: "patch" }, files, more, open.error && failure(open.error));
  }

  async toggle(seq) {
    if (this.open.delete(seq)) this.redraw([seq]);
    else {
      this.open.set(seq, { files: [], next: 0, total: 0 });
      await this.load(seq);
    }
  }

  /** Scroll to what a step changed, where little of it is to be seen. */
  show(seq) {
    const { transcript, list } = this.view;
    const line = transcript.querySelector(`[data-seq="${seq}"] .stepfiles`)?.getBoundingClientRect();
    const box = transcript.getBoundingClientRect();
    if (!line || (line.top >= box.top && line.top + Math.min(line.height, 160) <= box.bottom)) return;
    transcript.scrollTop += line.top - box.top - 40;
    list.render();
  }

  async load(seq) {
    const [open, step] = [this.open.get(seq), this.steps.get(seq)];
    Object.assign(open, { busy: true, error: null });
    this.redraw([seq]);
    try {
      const { files, next, total, more } = await get("files/patch", { a: step.a, b: step.b, from: open.next });
      open.files.push(...files);
      Object.assign(open, { next, total, cut: more });
    } catch (error) {
      open.error = error;
    }
    open.busy = false;
    this.redraw([seq]);
  }

  toggleChosen() {
    const { seq } = this.view;
    if (seq !== null && this.steps.has(seq)) this.toggle(seq).then(() => this.open.has(seq) && this.show(seq));
    else toast("This step changed no files: i leads to the next that did");
  }

  go(by) {
    const { seq } = this.view;
    const all = this.changed();
    const next = by > 0 ? all.find((at) => seq === null || at > seq) : all.findLast((at) => seq === null || at < seq);
    if (next !== undefined) this.view.choose(next, null, true);
    else toast(all.length ? `No step ${by > 0 ? "after" : "before"} this changed files` : "No step of this run changed files that were kept");
  }

  toFiles() {
    const { run, seq } = this.view;
    const [first] = this.places;
    if (this.any) location.hash = filesRoute(seq === null ? run : seq < (first?.seq ?? 0) ? first.place : `${run}@${seq}`);
    else toast("This run was recorded without its files");
  }
}

/** How many files and folders changed, in words. */
export function counted({ files, folders, own, more }) {
  const parts = [files > 0 && `${more ? "more than " : ""}${plural(files, "file")}`, folders > 0 && plural(folders, "folder")].filter(Boolean);
  const kept = (own ?? []).map((path) => plain(path));
  return [parts.join(" and "), parts.length ? " changed" : "", kept.length > 0 && [parts.length ? ", and " : "", kept.join(", ")], !parts.length && " changed"];
}
