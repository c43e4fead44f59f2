// The files of a run at one of its Calls: their tree, what a file holds, and what changed since the step before.

import { get, listen, name } from "./api.js";
import { button, copy, failure, h, later, loading, notice, plain, put, said, toast } from "./dom.js";
import { plural, whole } from "./format.js";
import { cursor } from "./call.js";
import { drawContent, factsOf } from "./filecontent.js";
import { FileTree } from "./filetree.js";
import { FilesDiff } from "./filesdiff.js";
import { drawPatch, fileName, oneLine, plusMinus, signTag } from "./patch.js";
import { dot, runLink } from "./runrow.js";
import { choices, fileRoute, filesDiffRoute, filesRoute } from "./stepfiles.js";

const TABS = ["Tree", "File"];
const FAMILY = 40; // runs of the family that are offered for a comparison

export async function filesView(root, where) {
  if (where.parts.length > 1) return new FilesDiff(root, where).begin();
  if (!where.parts[0]) throw Object.assign(new Error("no run is named"), { remedy: "Open a run and press s." });
  put(root, loading("Reading the files"));
  return new FilesPage(root, where).begin();
}

/** Where in a run a place is, in words. */
const called = (seq) => (seq === null ? "at the end" : `before call ${seq}`);

class FilesPage {
  constructor(root, where) {
    const at = cursor(where.parts[0]);
    Object.assign(this, { root, run: at.run, place: where.parts[0], path: where.query.get("path") ?? "", what: where.query.get("show") ?? "", places: [] });
    this.keys = {
      j: ["Next entry", () => this.tree.list.move(1)],
      k: ["Previous entry", () => this.tree.list.move(-1)],
      l: ["Open the folder", () => this.tree.unfold(true)],
      h: ["Close the folder, or the one above", () => this.tree.unfold(false)],
      enter: ["Open or close the folder", () => this.tree.list.enter()],
      n: ["Next file that changed", () => this.toChanged(1)],
      N: ["Previous file that changed", () => this.toChanged(-1)],
      "]": ["To the next step that changed files", () => this.step(1)],
      "[": ["To the step before", () => this.step(-1)],
      u: ["What the file holds, or what changed in it", () => this.turn()],
      d: ["Compare with another run, or with the beginning", () => this.others.focus()],
      c: ["Copy the line that brings these files back", () => copy(this.command)],
      s: ["To the run, at this Call", () => (location.hash = `#/run/${name(this.run)}${this.seq === null ? "" : `@${this.seq}`}`)],
      esc: ["All that changed since the step before", () => this.choose(null)],
    };
  }

  async begin() {
    const [{ summary, tree }, known] = await Promise.all([get(`run/${name(this.run)}`), get(`run/${name(this.run)}/snapshots`)]);
    this.run = summary.run;
    this.summary = summary;
    this.family = tree;
    this.places = known.places;
    if (known.error) throw Object.assign(new Error(known.error), { remedy: known.remedy });
    if (!known.places.length) throw Object.assign(new Error(`run ${this.run} was recorded without its files`), { remedy: "Record with `clew gateway --workspace FOLDER -- PROGRAM`, or run in a workspace: --world workspace." });
    this.draw();
    this.show(this.place, this.path); // keys are answered meanwhile
    this.treeBox.focus({ preventScroll: true });
    const again = later(500, () => this.readPlaces().catch(() => {}));
    this.stop = listen("runs", ({ rows }) => rows.some((row) => row.run === this.run) && again());
    return this;
  }

  close() {
    this.left = true;
    this.stop?.();
    this.tree?.destroy();
  }

  /** A run that goes on has more of them by now. */
  async readPlaces() {
    this.places = (await get(`run/${name(this.run)}/snapshots`)).places;
    if (!this.left) this.found(this.facts);
  }

  stay(where) {
    if (where.view !== "files" || where.parts.length !== 1 || cursor(where.parts[0]).run !== this.run) return false;
    this.what = where.query.get("show") ?? "";
    this.show(where.parts[0], where.query.get("path") ?? "");
    return true;
  }

  draw() {
    this.chooser = h("select", { "aria-label": "Files as they stood", on: { change: () => this.show(this.chooser.value, this.path) } });
    this.others = h("select", { "aria-label": "Compare with", on: { change: () => this.others.value && (location.hash = filesDiffRoute(this.others.value, this.at)) } });
    [this.back, this.on] = [["‹", "Previous", -1, "["], ["›", "Next", 1, "]"]].map(([sign, which, by, key]) => button(sign, () => this.step(by), { "aria-label": `${which} step that changed files`, title: `${which} step that changed files (${key})` }));
    this.fact = h("span", { class: "prompt" });
    this.line = h("div", { class: "shell" });
    this.treeBox = h("div", { class: "list lines" });
    this.pane = h("div", { class: "filepane", tabindex: 0, role: "region", "aria-label": "File" });
    this.tabs = TABS.map((label) => button(label, () => this.setTab(label), { role: "tab" }));
    this.trouble = h("div", { class: "notes" });
    put(this.root,
      h("header", { class: "runhead" }, h("div", { class: "title" }, dot(this.summary), h("h1", {}, "Files of ", runLink(this.run)), this.fact,
        h("span", { class: "actions" }, this.back, this.chooser, this.on, this.others)), this.line),
      h("div", { class: "tabs", role: "tablist", "aria-label": "Parts" }, this.tabs), this.trouble,
      h("div", { class: "filecols" }, h("nav", { class: "filetree", "aria-label": "Tree of files" }, this.treeBox), h("section", { class: "filemain", "aria-label": "Chosen file" }, this.pane)));
    this.tree = new FileTree(this.treeBox, { chosen: (entry, open) => this.choose(entry, open), failed: (error) => put(this.trouble, failure(error)) });
    this.setTab(this.path ? "File" : "Tree");
  }

  setTab(label) {
    this.root.dataset.tab = label;
    for (const tab of this.tabs) tab.setAttribute("aria-selected", String(tab.textContent === label));
    this.tree?.list.render();
  }

  /** The files of a place, with a file of them chosen, where there is one. */
  async show(place, path = "") {
    put(this.trouble);
    this.asked = {}; // a file that is still being read is of other files
    try {
      const found = await this.tree.show(place, path);
      if (!found || this.left) return;
      this.found(found);
      const row = path && this.tree.rows.find((one) => one.at === path);
      if (path && !row) put(this.trouble, h("p", { class: "hint filesgone", role: "status" }, "There is no ", fileName(path), ` in these files, ${called(found.seq)}.`));
      if (row && !(row.kind === "d" && row.sign !== "-")) await this.choose(row, this.root.dataset.tab === "File");
      else await this.choose(null);
    } catch (error) {
      this.going = null;
      if (!this.left) put(this.trouble, failure(error));
    }
  }

  found(facts) {
    const { place, seq, since, left, command } = facts;
    Object.assign(this, { facts, at: place, seq, since, command, going: null });
    const index = this.index();
    choices(this.chooser, this.places, place, seq);
    [this.back.disabled, this.on.disabled] = [index <= 0, index >= this.places.length - 1];
    put(this.fact, `as they stood ${called(seq)}`, since ? [", marked: what changed since ", h("a", { href: filesRoute(since) }, since.includes("@") ? since.replace(this.run, "") : plain(since))] : ", the first that are known",
      left > 0 && `; ${plural(left, "path")} that no snapshot can hold ${left === 1 ? "is" : "are"} missing`);
    put(this.line, h("code", { class: "command" }, plain(command)), button("Copy", () => copy(command), { class: "quiet" }));
    this.offer();
  }

  /** Which of the places it is, or the one that stood until then. */
  index() {
    const end = this.places.findIndex((one) => one.seq === null);
    return this.seq === null ? (end < 0 ? this.places.length - 1 : end) : this.places.findLastIndex((one) => one.seq !== null && one.seq <= this.seq);
  }

  offer() {
    const [first] = this.places;
    const others = this.family.filter((one) => one.run !== this.run).slice(0, FAMILY);
    const value = (place, label) => h("option", { value: place }, plain(label));
    put(this.others, value("", "Compare with …"), first && first.place !== this.at && value(first.place, "the first files of this run"),
      others.map((one) => value(one.run, `${one.run}, at its end${one.edits.length ? `: ${one.edits[0].slice(0, 40)}` : ""}`)));
    this.others.hidden = this.others.options.length < 2;
  }

  step(by) {
    const index = (this.going ?? this.index()) + by; // from where it goes already, where a key is pressed several times
    if (this.places[index]) {
      this.going = index;
      this.show(this.places[index].place, this.path);
    } else toast(by > 0 ? "These are the last files" : "These are the first files");
  }

  toChanged(by) {
    if (!this.tree.toChanged(by)) toast(`No file ${by > 0 ? "after" : "before"} this changed since the step before`);
  }

  address(extra = {}) {
    history.replaceState(null, "", filesRoute(this.at, this.path, extra));
    document.title = `Files ${plain(oneLine(this.path || this.at))} · clew`.slice(0, 200);
  }

  /** Show a file; without one all that changed since the step before. */
  async choose(entry, open = false) {
    this.entry = entry;
    this.path = entry?.at ?? "";
    if (!entry) this.tree.draw("");
    if (open || !entry) this.setTab(open && entry ? "File" : this.root.dataset.tab);
    const asked = (this.asked = {});
    try {
      if (!entry) await this.drawStep(asked);
      else await this.drawFile(entry, asked);
    } catch (error) {
      if (asked === this.asked) put(this.pane, failure(error));
    }
  }

  /** Whether the chosen file is shown by what changed in it. */
  get changes() {
    const { sign } = this.entry;
    return sign === "-" || (this.what === "changes" && Boolean(sign));
  }

  turn() {
    if (!this.entry?.sign) toast("Choose a file that changed: n leads to the next");
    else if (this.entry.sign !== "-") {
      this.what = this.what === "changes" ? "" : "changes";
      this.choose(this.entry);
    }
  }

  async drawFile(entry, asked) {
    const ask = { place: this.at, path: entry.at };
    const { changes } = this;
    const again = ({ whole: all }) => get("files/patch", { a: this.since, b: this.at, path: entry.at, whole: all ? 1 : null });
    const found = changes ? await again({}) : await get("files/content", ask);
    if (asked !== this.asked || this.left) return;
    this.address(this.what === "changes" && entry.sign && entry.sign !== "-" ? { show: "changes" } : {});
    const which = entry.sign && entry.sign !== "-" && h("span", { class: "chips" }, ["", "changes"].map((one) => button(one ? "Changes" : "File", () => {
      this.what = one;
      this.choose(entry);
    }, { class: "chip", "aria-pressed": String((this.what === "changes") === Boolean(one)) })));
    const body = h("div", { class: "filebody" });
    put(this.pane, h("header", { class: "filehead" }, entry.sign && signTag(entry.sign), h("h2", {}, fileName(entry.path)), h("span", { class: "dim" }, changes ? "" : factsOf({ ...entry, ...found })), changes && plusMinus(found), which), body);
    this.pane.scrollTop = 0;
    if (changes) put(body, drawPatch(found, { head: false, again }));
    else drawContent(body, found, ask);
  }

  /** All that changed since the step before, some files at a time. */
  async drawStep(asked) {
    this.address();
    if (!this.since) {
      put(this.pane, notice("Choose a file", "These are the first files that are known of this run: there is nothing to compare them with.", "empty"));
      return;
    }
    put(this.pane, loading("Reading what changed"));
    const list = h("div", { class: "patch" });
    const first = await get("files/patch", { a: this.since, b: this.at });
    if (asked !== this.asked || this.left) return;
    const own = first.total === 1 && first.files[0]?.kind === "own";
    put(this.pane, h("header", { class: "filehead" }, h("h2", {}, own ? "Only a program's own files changed" : `${first.more ? "More than " : ""}${plural(first.total, "path")} changed`),
      h("span", { class: "dim" }, `since ${this.since.includes("@") ? this.since.replace(this.run, "") : this.since}`)), list);
    this.pane.scrollTop = 0;
    this.grow(list, first, asked);
  }

  grow(list, { files, next, total, more }, asked) {
    const again = (file) => ({ whole: all }) => get("files/patch", { a: this.since, b: this.at, path: file.at, whole: all ? 1 : null });
    list.append(...files.map((file) => drawPatch(file, { href: fileRoute(this.at, file), again: again(file) })));
    if (next === null) {
      if (more) list.append(h("p", { class: "patchrest" }, `The first ${whole(total)} are listed; \`clew checkout\` brings all back.`));
      return;
    }
    const rest = h("div", { class: "patchrest" }, button(`Show ${plural(Math.min(20, total - next), "more file")}`, async () => {
      put(rest, h("span", { class: "dim", role: "status" }, "Reading on …"));
      try {
        const found = await get("files/patch", { a: this.since, b: this.at, from: next });
        rest.remove();
        if (asked === this.asked) this.grow(list, found, asked);
      } catch (error) {
        put(rest, failure(error));
      }
    }, { class: "more" }), h("span", { class: "dim" }, ` ${whole(next)} of ${whole(total)} shown`));
    list.append(rest);
  }
}
