// Runs: every run of the store as a list that is filtered, sorted, searched, folded by group, and grows while runs are made.

import { get, listen } from "./api.js";
import { button, failure, h, later, notice, plain, put, toast } from "./dom.js";
import { plural, whole } from "./format.js";
import { compareRoute } from "./compare.js";
import { cameFrom } from "./near.js";
import { FIELDS, hasTerm, meant, quoted, resort, sorting, toggle } from "./query.js";
import { Overview } from "./overview.js";
import { RowList } from "./rowlist.js";
import { GROUP_COLUMNS, RUN_COLUMNS, groupRow, runRow } from "./runrow.js";

const CHIPS = { running: "stop=open", succeeded: "return>0.5", failed: "return<=0.5", crashed: "stop=*_error", forks: "origin=fork" };
const narrow = matchMedia("(max-width: 700px)");

export async function runsView(root, where) {
  return new Runs(root, where.query).begin();
}

class Runs {
  constructor(root, query) {
    this.root = root;
    this.typed = query.get("q") ?? "";
    this.fold = query.get("fold") === "1";
    this.fresh = new Map(); // run -> when it was first heard of
    this.unseen = new Set();
    this.marked = [];
    this.keys = {
      j: ["Next run", () => this.list.move(1)],
      k: ["Previous run", () => this.list.move(-1)],
      enter: ["Open it", () => this.list.enter()],
      f: ["Fork it: opens it at its end", () => this.openAt("fork")],
      d: ["Compare: press on one run, then on another", () => this.compare()],
      g: ["Open its group", () => this.openGroup()],
      o: ["Fold groups, or unfold them", () => this.setFold(!this.fold)],
      w: ["Only the world of this run, or all again", () => this.only("world")],
      s: ["Only the task of this run, or all again", () => this.only("task")],
      G: ["To the end", () => this.list.select(this.list.pages.total - 1)],
      c: ["Compare the runs of this query with those of another", () => (location.hash = compareRoute(this.typed))],
      h: ["To the start", () => this.list.select(0)],
    };
  }

  begin() {
    this.draw();
    this.stops = [listen("runs", (data) => this.heard(data.rows)), listen("up", (gap) => gap && this.again())];
    this.again = later(150, () => this.refetch());
    this.turn = () => this.list?.refresh();
    narrow.addEventListener("change", this.turn);
    this.build();
    this.root.querySelector(".list").focus({ preventScroll: true });
    return this;
  }

  close() {
    this.stops.forEach((stop) => stop());
    narrow.removeEventListener("change", this.turn);
    this.list?.destroy();
    this.overview.close();
  }

  stay(where) {
    if (where.view !== "runs") return false;
    const typed = where.query.get("q") ?? "";
    const fold = where.query.get("fold") === "1";
    if (typed !== this.typed || fold !== this.fold) {
      Object.assign(this, { typed, fold });
      this.field.value = typed;
      this.changed(false);
    }
    return true;
  }

  draw() {
    this.field = h("input", {
      type: "search", value: this.typed, spellcheck: "false", autocomplete: "off", list: "terms", "aria-label": "Filter runs",
      placeholder: "Words in messages, or world=household return<0.5 steps>20 sort:-steps",
      on: { input: later(180, () => this.search(this.field.value)), keydown: (event) => this.fieldKey(event) },
    });
    const terms = h("datalist", { id: "terms" });
    this.field.addEventListener("input", () => this.suggest(terms));
    this.chips = Object.entries(CHIPS).map(([label, term]) => button(label, () => this.search(toggle(this.typed, term)), { class: "chip", data: { term } }));
    this.folder = button("Fold groups", () => this.setFold(!this.fold), { class: "chip", "aria-pressed": "false" });
    this.count = h("output", { class: "count", "aria-live": "polite" });
    this.pill = button("", () => this.showNew(), { class: "pill", hidden: true });
    this.sorter = h("select", { "aria-label": "Sort by", class: "sorter", on: { change: () => this.search(this.withSort(this.sorter.value)) } });
    this.overview = new Overview({ query: () => meant(this.typed), typed: () => this.typed, search: (typed) => this.search(typed) });
    put(
      this.root,
      h("h1", { class: "hidden" }, "Runs"),
      h("search", { class: "bar" }, this.field, terms, h("div", { class: "chips" }, this.chips, this.folder), this.sorter, this.count),
      this.overview.root,
      (this.head = h("div", { class: "heads", role: "group", "aria-label": "Sort by" })),
      h("div", { class: "listbox" }, this.pill, (this.box = h("div", { class: "list" }))),
    );
  }

  columns() {
    return this.fold ? GROUP_COLUMNS : RUN_COLUMNS;
  }

  build() {
    this.list?.destroy();
    this.unseen.clear();
    this.pill.hidden = true;
    const [old, box] = [this.box, h("div", { class: `list ${this.fold ? "groups" : "runs"}` })];
    const focused = old === document.activeElement;
    old.replaceWith((this.box = box));
    this.list = new RowList(this.box, {
      height: () => (narrow.matches ? 58 : 30),
      label: this.fold ? "Groups" : "Runs",
      load: (...part) => this.load(...part),
      draw: (row) => (this.fold ? groupRow(row) : runRow(row, { fresh: this.isFresh(row.run), marked: this.marked.includes(row.run) })),
      open: (row) => this.open(row),
      arrived: (total) => this.counted(total),
      empty: () => this.nothing(),
    });
    this.list.fail = (error) => {
      put(this.count, "");
      put(this.list.root, failure(error));
    };
    box.addEventListener("click", (event) => {
      const row = event.target.closest("a") && event.target.closest(".row");
      if (row) this.leave(Number(row.getAttribute("aria-rowindex")) - 1);
    }, { capture: true });
    if (focused) box.focus({ preventScroll: true });
    this.heads();
  }

  async load(start, stop, signal) {
    const asked = { q: meant(this.typed), limit: stop - start, after: start || null };
    const { rows, total } = await get(this.fold ? "groups" : "runs", asked, { signal });
    return { rows, total };
  }

  /** Heads of the columns; those that sort are buttons. */
  heads() {
    const { field, down } = sorting(this.typed);
    const heads = this.columns().map(({ label, sort, kind, title }) => {
      if (!sort || this.fold) return h("span", { class: `c-${kind}`, title }, label);
      const on = field === sort;
      const arrow = on ? (down ? " ↓" : " ↑") : "";
      return button([label, arrow], () => this.search(resort(this.typed, sort)), { class: `c-${kind} ${on ? "on" : ""}`, title, "aria-pressed": String(on) });
    });
    this.head.className = `heads ${this.fold ? "groups" : "runs"}`;
    const focused = [...this.head.children].indexOf(document.activeElement);
    put(this.head, heads);
    this.head.children[focused]?.focus();
    for (const chip of this.chips) chip.setAttribute("aria-pressed", String(hasTerm(this.typed, chip.dataset.term)));
    this.folder.setAttribute("aria-pressed", String(this.fold));
    const choices = [["", "newest first"], ...RUN_COLUMNS.filter((c) => c.sort).flatMap((c) => [[`-${c.sort}`, `${c.label} ↓`], [c.sort, `${c.label} ↑`]])];
    const now = field ? `${down ? "-" : ""}${field}` : "";
    put(this.sorter, choices.map(([value, label]) => h("option", { value, selected: value === now }, label)));
  }

  withSort(choice) {
    const bare = this.typed.split(/\s+/).filter((term) => !term.startsWith("sort:")).join(" ");
    return choice ? `${bare} sort:${choice}`.trim() : bare;
  }

  search(typed) {
    if (this.field.value !== typed) this.field.value = typed;
    if (typed === this.typed) return;
    this.typed = typed;
    this.changed();
  }

  setFold(fold) {
    this.fold = fold;
    this.changed();
  }

  changed(write = true) {
    const query = new URLSearchParams();
    if (this.typed) query.set("q", this.typed);
    if (this.fold) query.set("fold", "1");
    if (write) history.replaceState(null, "", `#/runs${query.size ? `?${query}` : ""}`);
    this.build();
  }

  fieldKey(event) {
    if (event.key === "Enter") this.search(this.field.value);
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.box.focus();
      this.list.select(0);
    }
  }

  /** Offer fields, and values seen in the rows at hand, for the term that is being typed. */
  suggest(terms) {
    const cut = this.field.value.lastIndexOf(" ") + 1;
    const [before, term] = [this.field.value.slice(0, cut), this.field.value.slice(cut)];
    const field = term.match(/^(world|task|agent|model|stop|tag)=/)?.[1];
    const values = new Set();
    if (field && this.list && !this.fold) for (const [, row] of this.list.pages.each()) values.add(row[field] || (field === "stop" ? "open" : ""));
    const offers = field ? [...values].filter(Boolean).map((value) => [`${field}=${quoted(value)}`, ""]) : Object.entries(FIELDS);
    const fitting = offers.filter(([offer]) => offer.startsWith(term)).slice(0, 20);
    put(terms, fitting.map(([offer, what]) => h("option", { value: before + offer }, plain(what))));
  }

  counted(total) {
    if (total !== null) this.overview.read();
    put(this.count, total === null ? "" : this.fold ? plural(total, "row") : plural(total, "run"));
  }

  nothing() {
    if (!this.typed) return notice("No runs yet", "Make some with `clew quickstart`, `clew run` or `clew import`; they appear here as they are made.");
    return notice("No run fits", "Loose words are looked for in messages; field=value compares.", "empty", button("Show all", () => this.search("")));
  }

  /** Remember the list, so that the run's page can lead to the next one. */
  leave(index) {
    if (!this.fold) cameFrom({ q: meant(this.typed), index, back: location.hash || "#/runs", title: this.typed || "all runs" });
  }

  open(row, index) {
    this.leave(index);
    if (this.fold && !row.run) location.hash = `#/group/${encodeURIComponent(row.group)}`;
    else location.hash = `#/run/${encodeURIComponent(row.run)}`;
  }

  openAt(what) {
    const row = this.list.current;
    this.leave(this.list.index);
    if (row?.run) location.hash = `#/run/${encodeURIComponent(row.run)}?do=${what}`;
  }

  openGroup() {
    const row = this.list.current;
    if (row?.group) location.hash = `#/group/${encodeURIComponent(row.group)}`;
    else toast("This run belongs to no group");
  }

  only(field) {
    const value = this.list.current?.[field];
    if (value) this.search(toggle(this.typed, `${field}=${quoted(value)}`));
  }

  compare() {
    const run = this.list.current?.run;
    if (!run) return;
    if (this.marked.length && this.marked[0] !== run) location.hash = `#/diff/${this.marked[0]}/${run}`;
    else {
      this.marked = this.marked.length ? [] : [run];
      this.list.refresh();
      if (this.marked.length) toast(`Comparing ${run}: press d on the other run`);
    }
  }

  isFresh(run) {
    return performance.now() - (this.fresh.get(run) ?? -1e9) < 4000;
  }

  /** Rows that changed: those shown are drawn again, new ones are read in their place. */
  heard(rows) {
    const known = new Map([...this.list.pages.each()].map(([i, row]) => [row.run, i]));
    let missing = this.fold;
    for (const row of rows) {
      const i = this.fold ? undefined : known.get(row.run);
      if (i === undefined) {
        if (!this.fresh.has(row.run)) {
          this.fresh.set(row.run, performance.now());
          this.unseen.add(row.run);
          missing = true;
        }
        continue;
      }
      Object.assign(this.list.pages.at(i), row);
      missing ||= Boolean(this.typed) && this.box.scrollTop < 40; // it may no longer fit, or stand elsewhere
      const el = this.list.drawn.get(i);
      if (el) {
        this.list.drop(i, el);
        this.list.place(i, this.list.height());
      }
    }
    if (!missing) return;
    if (this.box.scrollTop < 40) this.again();
    else {
      this.pill.hidden = false;
      put(this.pill, `${whole(this.unseen.size)} changed · show`);
    }
  }

  async refetch() {
    const chosen = this.list.current?.run;
    this.unseen.clear();
    await this.list.reload();
    if (!chosen || this.list.current?.run === chosen) return;
    for (const [i, row] of this.list.pages.each()) if (row.run === chosen) this.list.select(i, false);
  }

  showNew() {
    this.pill.hidden = true;
    this.box.scrollTop = 0;
    this.refetch();
  }
}
