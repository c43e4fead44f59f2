// The files of two places, of two branches or of one run, compared: paths that differ, and a file of both side by side.

import { get, name } from "./api.js";
import { button, failure, h, loading, notice, plain, put, toast } from "./dom.js";
import { plural, whole } from "./format.js";
import { cursor } from "./call.js";
import { drawPatch, fileName, oneLine, plusMinus, signTag } from "./patch.js";
import { RowList } from "./rowlist.js";
import { dot, runLink } from "./runrow.js";
import { choices, filesDiffRoute, filesRoute } from "./stepfiles.js";

const TABS = ["Paths", "File"];
const COARSE = matchMedia("(pointer: coarse)");
const NARROW = matchMedia("(max-width: 700px)");
const LETTERS = ["A", "B"];

export class FilesDiff {
  constructor(root, where) {
    Object.assign(this, { root, places: where.parts.slice(0, 2), path: where.query.get("path") ?? "" });
    this.columns = localStorage.getItem("columns") !== "off";
    this.keys = {
      j: ["Next file that differs", () => this.list?.move(1)],
      k: ["Previous file that differs", () => this.list?.move(-1)],
      enter: ["To the file", () => this.toFile()],
      v: ["Side by side, or one column", () => this.turn()],
      x: ["Swap sides", () => (location.hash = filesDiffRoute(this.places[1], this.places[0], this.path))],
      h: ["All files of the left side", () => (location.hash = filesRoute(this.places[0], this.path))],
      l: ["All files of the right side", () => (location.hash = filesRoute(this.places[1], this.path))],
      d: ["The Calls of both runs side by side", () => this.toCalls()],
      esc: ["To the list of paths", () => this.listBox.focus()],
    };
  }

  async begin() {
    put(this.root, loading("Comparing the files"));
    this.sides = await Promise.all(this.places.map(async (place) => {
      const { run } = cursor(place);
      const [{ summary }, { places, error, remedy }] = await Promise.all([get(`run/${name(run)}`), get(`run/${name(run)}/snapshots`)]);
      if (error) throw Object.assign(new Error(error), { remedy });
      if (!places.length) throw Object.assign(new Error(`run ${summary.run} was recorded without its files`), { remedy: "Compare two runs that have theirs: those of a workspace, or of `clew gateway --workspace`." });
      return { summary, places };
    }));
    this.first = await get("files/changed", { a: this.places[0], b: this.places[1] });
    this.places = [this.first.a, this.first.b];
    this.draw();
    this.turned = () => this.show();
    NARROW.addEventListener("change", this.turned);
    this.listBox.focus({ preventScroll: true });
    return this;
  }

  close() {
    this.left = true;
    NARROW.removeEventListener("change", this.turned);
    this.list?.destroy();
  }

  stay(where) {
    if (where.view !== "files" || where.parts.length !== 2 || where.parts.some((place, i) => place !== this.places[i])) return false;
    this.select(where.query.get("path") ?? "");
    return true;
  }

  draw() {
    const { total, more } = this.first;
    const verdict = total === 0 ? "equal: both have the same files there" : `${more ? "more than " : ""}${plural(total, "path")} ${total === 1 ? "differs" : "differ"}`;
    this.chip = button("Side by side", () => this.turn(), { class: "chip twocolumns", "aria-pressed": String(this.columns), title: "Both sides in two columns, or in one (v)" });
    this.listBox = h("div", { class: "list lines" });
    this.pane = h("div", { class: "filepane", tabindex: 0, role: "region", "aria-label": "File" });
    this.tabs = TABS.map((label) => button(label, () => this.setTab(label), { role: "tab" }));
    put(this.root,
      h("header", { class: "runhead" }, h("div", { class: "title" }, h("h1", {}, this.runs.length > 1 ? "Files of two runs" : "Files of a run at two calls"), h("span", { class: "prompt" }, verdict),
        h("span", { class: "actions" }, this.chip, button(["Swap ", h("kbd", {}, "x")], this.keys.x[1]), this.runs.length > 1 && button(["Calls ", h("kbd", {}, "d")], this.keys.d[1])))),
      h("div", { class: "sides" }, LETTERS.map((_, i) => this.side(i))),
      h("div", { class: "tabs", role: "tablist", "aria-label": "Parts" }, this.tabs),
      h("div", { class: "filecols" }, h("nav", { class: "filetree", "aria-label": "Paths that differ" }, this.listBox), h("section", { class: "filemain", "aria-label": "Chosen file" }, this.pane)));
    this.list = new RowList(this.listBox, {
      height: () => (COARSE.matches ? 34 : 24), label: "Paths that differ", page: 200, load: (start) => this.load(start), draw: (row) => this.line(row), open: () => this.toFile(),
      selected: (row) => row && this.show(row), empty: () => h("p", { class: "hint notice" }, "Nothing differs"), arrived: () => this.arrived(),
    });
    this.setTab("Paths");
    if (!total) put(this.pane, notice("Equal", "Both have the same files there, with the same contents and permissions.", "empty"));
  }

  get runs() {
    return [...new Set(this.sides.map(({ summary }) => summary.run))];
  }

  /** A side: its run, and the places in it to choose from. */
  side(i) {
    const { summary, places } = this.sides[i];
    const here = this.places[i];
    const { seq } = cursor(here);
    const chooser = h("select", { "aria-label": `Side ${LETTERS[i]}: files as they stood`, on: { change: () => this.go(i, chooser.value) } });
    choices(chooser, places, here, seq);
    return h("div", { class: `head ${i ? "right" : "left"}` }, h("span", { class: `side${LETTERS[i]}`, "aria-hidden": "true" }, LETTERS[i]), dot(summary), runLink(summary.run, seq === null ? "" : `@${seq}`), chooser, h("a", { href: filesRoute(here) }, "All files"));
  }

  go(i, place) {
    const places = [...this.places];
    places[i] = place;
    location.hash = filesDiffRoute(...places, this.path);
  }

  async load(start) {
    const { first } = this;
    const found = start === 0 && first ? first : await get("files/changed", { a: this.places[0], b: this.places[1], from: start });
    this.first = null;
    return { rows: found.files, total: found.total };
  }

  /** The first rows are there: choose the path that the address names, or the first that is a file. */
  arrived() {
    if (this.begun || !this.list?.pages.total) return;
    this.begun = true;
    this.select(this.path);
  }

  async select(path) {
    const rows = [...this.list.pages.each()];
    const [at] = rows.find(([, row]) => row.at === path) ?? (path ? [] : (rows.find(([, row]) => row.kind === "f" || row.kind === "l") ?? rows[0] ?? []));
    if (at !== undefined) this.list.select(at);
    else this.show({ at: path, path }); // it lies further down the list, or is equal
  }

  line(row) {
    const cut = row.path.lastIndexOf("/") + 1;
    return h("div", { class: `row entry ${row.sign === "-" ? "deleted" : ""}`, "aria-label": plain(oneLine(row.path)).slice(0, 200) },
      h("span", { class: "entryname" }, cut > 0 && h("span", { class: "dim" }, fileName(row.path.slice(0, cut))), fileName(row.path.slice(cut)), row.kind === "d" && h("span", { class: "dim" }, "/")), h("span", { class: "entryfacts" }, plusMinus(row), signTag(row.sign)));
  }

  setTab(label) {
    this.root.dataset.tab = label;
    for (const tab of this.tabs) tab.setAttribute("aria-selected", String(tab.textContent === label));
    this.list?.render();
  }

  toFile() {
    this.setTab("File");
    this.pane.focus();
  }

  toCalls() {
    if (this.runs.length > 1) location.hash = `#/diff/${this.runs.map(name).join("/")}`;
    else toast("Both sides are of one run");
  }

  turn() {
    localStorage.setItem("columns", (this.columns = !this.columns) ? "on" : "off");
    this.chip.setAttribute("aria-pressed", String(this.columns));
    this.show();
  }

  /** What differs in a file. */
  async show(row = this.row) {
    if (!row) return;
    this.row = row;
    this.path = row.at;
    const asked = (this.asked = {});
    history.replaceState(null, "", filesDiffRoute(...this.places, row.at));
    const [a, b] = this.places;
    const again = ({ whole: all }) => get("files/patch", { a, b, path: row.at, whole: all ? 1 : null });
    try {
      if (this.file?.at !== row.at) this.file = await again({});
      if (asked !== this.asked || this.left) return;
      const columns = this.columns && !NARROW.matches;
      const only = { "+": "only on the right", "-": "only on the left" }[this.file.sign];
      const links = [[a, "-", "left"], [b, "+", "right"]].map(([place, , side], i) => this.file.kinds[i] && this.file.kinds[i] !== "d" && h("a", { href: filesRoute(place, row.at) }, `File on the ${side}`));
      put(this.pane, h("header", { class: "filehead" }, signTag(this.file.sign), h("h2", {}, fileName(this.file.path)), only && h("span", { class: "tag" }, only), plusMinus(this.file), h("span", { class: "patchlinks" }, links)),
        h("div", { class: "filebody" }, drawPatch(this.file, { columns, head: false, again })));
      this.pane.scrollTop = 0;
    } catch (error) {
      if (asked === this.asked) put(this.pane, failure(error));
    }
  }
}
