// The tree of files at a place of a run: folders open when asked for, what changed since the step before is marked.

import { get } from "./api.js";
import { button, h, plain } from "./dom.js";
import { plural, size } from "./format.js";
import { RowList } from "./rowlist.js";
import { fileName, oneLine, signTag } from "./patch.js";

const AHEAD = 12; // folders with changes that are opened by themselves
const TALL = matchMedia("(pointer: coarse)");

export class FileTree {
  /** chosen(entry) hears which file, or folder that is gone, is to be shown; failed(error) what could not be read. */
  constructor(root, { chosen, failed }) {
    Object.assign(this, { root, chosen, failed, rows: [], folders: new Map(), open: new Set(), age: 0 });
    this.list = new RowList(root, {
      height: () => (TALL.matches ? 34 : 24), label: "Files", load: async (start, stop) => ({ rows: this.rows.slice(start, stop), total: this.rows.length }),
      draw: (row) => this.line(row), open: (row) => this.enter(row), opens: (row) => row?.kind === "d", selected: (row) => row && this.select(row),
      empty: () => h("p", { class: "hint notice" }, "No files"),
    });
  }

  destroy() {
    this.age += 1;
    this.list.destroy();
  }

  /** Show the files of a place; folders that are open stay so. `path` is a file whose folders are opened. Gives what the root says. */
  async show(place, path = "") {
    const age = (this.age += 1);
    Object.assign(this, { place, folders: new Map() });
    const root = await this.read("");
    if (age !== this.age) return null;
    const above = path.split("/").slice(0, -1).map((_, i, all) => all.slice(0, i + 1).join("/"));
    for (const at of above) this.open.add(at);
    await this.readOpen(age);
    await this.openChanged(age);
    if (age === this.age) this.draw(path);
    return age === this.age ? root : null;
  }

  async read(at, from = 0) {
    const { place, folders } = this; // of these files, also where others are wanted by the time it is there
    const found = await get("files/folder", { place, path: at, from: from || null });
    const known = from ? folders.get(at) : { entries: [] };
    folders.set(at, { ...found, entries: [...known.entries, ...found.entries] });
    return found;
  }

  /** Read what is open; a folder that is no longer there is closed. */
  async readOpen(age) {
    for (const at of [...this.open].sort((a, b) => a.length - b.length)) {
      if (this.folders.has(at)) continue;
      const up = this.folders.get(at.split("/").slice(0, -1).join("/"));
      const listed = up?.entries.some((entry) => entry.at === at && entry.kind === "d" && entry.sign !== "-");
      if (!listed && !(up && up.next !== null)) this.open.delete(at);
      else await this.read(at).catch(() => this.open.delete(at));
      if (age !== this.age) return;
    }
  }

  /** Open the folders in which something changed, the upper ones first. */
  async openChanged(age) {
    const queue = [""];
    for (let left = AHEAD; queue.length && left > 0; ) {
      const folder = this.folders.get(queue.shift());
      for (const entry of folder?.entries ?? []) {
        if (entry.kind !== "d" || entry.sign !== "*" || entry.name === ".git" || left <= 0) continue;
        left -= 1;
        this.open.add(entry.at);
        if (!this.folders.has(entry.at)) await this.read(entry.at).catch(() => this.open.delete(entry.at));
        if (age !== this.age) return;
        queue.push(entry.at);
      }
    }
  }

  /** The rows as they are now; `path` is chosen, or what was. */
  draw(path = this.path ?? "") {
    const rows = [];
    const add = (at, depth) => {
      const folder = this.folders.get(at);
      for (const entry of folder?.entries ?? []) {
        rows.push({ ...entry, depth });
        if (entry.kind === "d" && this.open.has(entry.at)) add(entry.at, depth + 1);
      }
      if (folder && folder.next !== null) rows.push({ more: at, depth, left: folder.total - folder.entries.length });
      if (folder && !folder.entries.length && at) rows.push({ nothing: true, depth });
    };
    add("", 0);
    this.rows = rows;
    this.path = path;
    this.list.index = rows.findIndex((row) => row.at !== undefined && row.at === path);
    this.list.reload();
    if (this.list.index >= 0) this.list.show(this.list.index);
  }

  line(row) {
    const pad = { "--deep": Math.min(row.depth, 24) };
    if (row.nothing) return h("div", { class: "row entry", style: pad }, h("span", { class: "dim" }, "an empty folder"));
    if (row.more !== undefined) return h("div", { class: "row entry", style: pad }, h("span", {}, button(`Show more of ${plural(row.left, "entry", "entries")}`, () => this.more(row.more), { class: "more" })));
    const folder = row.kind === "d";
    const caret = h("span", { class: "caret", "aria-hidden": "true" }, folder ? (this.open.has(row.at) ? "▾" : "▸") : "");
    const link = row.kind === "l" && h("span", { class: "dim" }, " → ", fileName(row.target ?? ""));
    const facts = [row.gone && h("span", { class: "tag", title: plain(row.gone) }, "gone"), row.kind === "f" && row.mode & 0o111 ? h("span", { class: "tag", title: "may be run" }, "x") : null, h("span", { class: "dim" }, size(row.size ?? null).replace("–", "")), row.sign && signTag(row.sign)];
    const said = [plain(oneLine(row.name)).slice(0, 120), folder ? (this.open.has(row.at) ? "folder, open" : "folder") : row.kind === "l" ? "link" : ""].filter(Boolean).join(", ");
    return h("div", { class: `row entry ${folder ? "folder" : ""} ${row.sign === "-" ? "deleted" : ""}`, style: pad, "aria-label": said, "aria-expanded": folder && row.sign !== "-" ? String(this.open.has(row.at)) : null },
      h("span", { class: "entryname" }, caret, fileName(row.name), folder && h("span", { class: "dim" }, "/"), link), h("span", { class: "entryfacts" }, facts));
  }

  async more(at) {
    await this.read(at, this.folders.get(at).next).catch(this.failed);
    this.draw();
  }

  select(row) {
    if (row.at === undefined) return;
    this.path = row.at;
    if (row.kind !== "d" || row.sign === "-") this.chosen(row);
  }

  /** Enter on a folder opens or closes it. */
  enter(row) {
    if (row.more !== undefined) this.more(row.more);
    else if (row.kind === "d" && row.sign !== "-") this.turn(row, !this.open.has(row.at));
    else if (row.at !== undefined) this.chosen(row, true);
  }

  async turn(row, open) {
    if (!open) this.open.delete(row.at);
    else {
      this.open.add(row.at);
      if (!this.folders.has(row.at)) await this.read(row.at).catch((error) => (this.open.delete(row.at), this.failed(error)));
    }
    this.draw(); // what is chosen by now stays so
  }

  /** Open the folder at hand; or close it, or the one that holds it. */
  unfold(open) {
    const row = this.list.current;
    if (!row || row.at === undefined) return;
    if (row.kind === "d" && row.sign !== "-" && this.open.has(row.at) !== open) this.turn(row, open);
    else if (!open) {
      const up = this.rows.findLastIndex((one, i) => i < this.list.index && one.kind === "d" && one.depth < row.depth);
      if (up >= 0) this.list.select(up);
    } else this.list.move(1);
  }

  /** The next file that changed, among those that are to be seen. */
  toChanged(by) {
    const changed = (row) => row.sign && row.kind !== "d";
    const from = this.list.index;
    const next = by > 0 ? this.rows.findIndex((row, i) => i > from && changed(row)) : this.rows.findLastIndex((row, i) => (from < 0 || i < from) && changed(row));
    if (next >= 0) this.list.select(next);
    return next >= 0;
  }
}
