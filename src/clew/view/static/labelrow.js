// The row above a transcript in which labels are given: by keys alone, or by pointer; and what others said there.

import { get, listen, name, post } from "./api.js";
import { button, failure, h, plain, put, said, toast } from "./dom.js";
import { plural } from "./format.js";
import { drawLabel, inShort, letters } from "./labels.js";

const FEW = 3; // labels shown while the row is closed

/**
 * view: {run, seq, token, store, transcript, callAt(seq), choose(seq, token, show)}. Within the row 1 to 5 set stars (0: none),
 * a letter a verdict, t what is labelled, n goes to the note, x takes back, Enter saves, Escape leaves. What was given
 * and not saved stays where it was meant for, whatever Call is chosen meanwhile.
 */
export class LabelRow {
  constructor(view) {
    Object.assign(this, { view, labels: [], verdicts: [], letters: new Map(), seq: null, token: null, whole: false, span: null });
    this.empty();
    this.told = h("ul", { class: "labellist", "aria-label": "Labels" });
    this.form = h("form", { class: "labelform", hidden: true, role: "group", "aria-label": "Label", on: { submit: (event) => this.submit(event), keydown: (event) => this.key(event) } });
    this.box = h("div", { class: "labelbox" }, h("div", { class: "labelhead" },
      (this.opener = button(["Label ", h("kbd", {}, "a")], () => (this.form.hidden ? this.open() : this.close()), { class: "chip", "aria-expanded": "false" })), this.told), this.form);
    this.stop = listen("label", () => this.read());
    this.read();
  }

  leave() {
    this.stop();
  }

  empty() {
    this.draft = { stars: null, verdict: "", note: "" };
  }

  /** The labels as they stand. */
  async read() {
    try {
      this.take(await get(`run/${name(this.view.run)}/labels`));
    } catch (error) {
      put(this.told, h("li", {}, failure(error)));
    }
  }

  /** What another person says meanwhile must not take the keys from who is labelling: the form is drawn anew for its words alone. */
  take(data) {
    const other = data.verdicts.join() !== this.verdicts.join();
    const same = JSON.stringify(data.labels) === JSON.stringify(this.labels);
    Object.assign(this, { labels: data.labels, verdicts: data.verdicts, letters: letters(data.verdicts) });
    this.list();
    if (!this.form.hidden && other) {
      const held = this.form.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
      this.draw();
      if (held) (this.form.querySelector(`[aria-label="${CSS.escape(held)}"]`) ?? this.stars.firstChild).focus({ preventScroll: true });
    }
    if (!same) this.view.list?.redrawAll();
  }

  /** What is said of a Call, in short, for the transcript. */
  on(seq) {
    return this.labels.filter((label) => label.seq === seq).map(inShort);
  }

  list() {
    const all = !this.form.hidden;
    const shown = all ? this.labels : this.labels.slice(-FEW);
    const rest = this.labels.length - shown.length;
    const href = (label) => `#/run/${name(this.view.run)}${label.seq === undefined ? "" : `@${label.seq}${label.span ? `+${label.span[0]}` : ""}`}`;
    const short = (label) => (label.seq === undefined ? "run" : `@${label.seq}${label.span ? `+${label.span.join(":")}` : ""}`);
    put(this.told, rest > 0 && h("li", { class: "dim" }, `${plural(rest, "label")} before`), shown.map((label) => drawLabel(label, href(label), short(label))));
    this.told.classList.toggle("all", all);
  }

  get draftGiven() {
    const { stars, verdict, note } = this.draft;
    return stars !== null || verdict !== "" || note !== "";
  }

  get place() {
    const { view: { run }, seq } = this;
    if (this.whole) return run;
    return `${run}@${seq}${this.span ? `+${this.span[0]}:${this.span[1]}` : ""}`;
  }

  /** Name what is labelled after what is chosen: the run, the Call, or the token. */
  aim() {
    if (this.draftGiven) return;
    const { seq, token } = this.view;
    Object.assign(this, { seq, token });
    this.span = seq !== null && token !== null ? [token, token + 1] : null;
    this.whole = seq === null;
    if (!this.form.hidden) this.draw();
  }

  open() {
    if (this.view.store.readonly) {
      toast("This server writes nothing: it was started read-only");
      return;
    }
    this.form.hidden = false;
    this.opener.setAttribute("aria-expanded", "true");
    this.aim();
    this.list();
    this.focus();
  }

  close() {
    this.form.hidden = true;
    this.opener.setAttribute("aria-expanded", "false");
    this.empty();
    this.list();
    this.view.transcript.focus({ preventScroll: true });
  }

  focus() {
    this.stars?.querySelector("[aria-checked=true], button")?.focus({ preventScroll: true });
  }

  /** What is labelled in a few words. */
  target() {
    if (this.whole) return "the run";
    if (!this.span) return `Call ${this.seq}`;
    const [from, to] = this.span;
    return to - from === 1 ? `Call ${this.seq}, token ${from}` : `Call ${this.seq}, tokens ${from} to ${to - 1}`;
  }

  draw() {
    const radio = (label, on, run, aria) => button(label, run, { role: "radio", "aria-checked": String(on), "aria-label": aria, class: "chip", tabindex: on ? 0 : -1 });
    this.stars = h("div", { class: "choices", role: "radiogroup", "aria-label": "Stars" }, [1, 2, 3, 4, 5].map((n) => radio([`${n}★`], this.draft.stars === n, () => this.set("stars", n), plural(n, "star"))));
    if (this.draft.stars === null) this.stars.firstChild.tabIndex = 0;
    const verdicts = this.verdicts.map((word) => radio([said(word), " ", this.letters.get(word) && h("kbd", {}, this.letters.get(word))], this.draft.verdict === word, () => this.set("verdict", word), plain(word)));
    this.words = h("div", { class: "choices", role: "radiogroup", "aria-label": "Verdict" }, verdicts);
    if (verdicts.length && !this.draft.verdict) verdicts[0].tabIndex = 0;
    this.note = h("textarea", { rows: 2, "aria-label": "Note", placeholder: "Note (n); Enter saves, Shift+Enter begins a line", value: this.draft.note, on: { input: () => (this.draft.note = this.note.value) } });
    this.by ??= h("input", { "aria-label": "Your name", placeholder: "Your name", autocomplete: "off", maxlength: 80, required: true, value: localStorage.getItem("author") ?? "" });
    this.said = h("div", { class: "labelsaid", role: "alert" });
    this.form.setAttribute("aria-label", `Label ${this.target()}`);
    const wider = this.span && [button("−", () => this.widen(-1), { "aria-label": "One token less ([)" }), button("+", () => this.widen(1), { "aria-label": "One token more (])" })];
    put(this.form,
      h("div", { class: "labeltarget" }, button([h("b", {}, this.target()), " ", h("kbd", {}, "t")], () => this.turn(), { class: "quiet", title: "What is labelled: the run, the Call, the token", "aria-label": `Labels ${this.target()}; change` }), wider),
      this.stars, this.words, this.note, this.by,
      h("span", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Save ", h("kbd", {}, "Enter")), button(["Take back ", h("kbd", {}, "x")], () => this.send({ withdraw: ["stars", "verdict", "note"] })), button(["Close ", h("kbd", {}, "Esc")], () => this.close())),
      this.said);
  }

  /** Give stars or a verdict; given again, take it out of the draft. */
  set(what, value) {
    const group = what === "stars" ? "stars" : "words";
    this.draft[what] = this.draft[what] === value ? (what === "stars" ? null : "") : value;
    const at = [...this[group].children].findIndex((one) => one === document.activeElement);
    this.draw();
    const all = [...this[group].children];
    (all.find((one) => one.getAttribute("aria-checked") === "true") ?? all[Math.max(at, 0)])?.focus({ preventScroll: true });
  }

  /** Label the whole run instead of the Call, or the whole Call instead of the token, in turn. */
  turn() {
    const { seq, token } = this;
    if (seq === null) return;
    if (this.whole) [this.whole, this.span] = [false, token === null ? null : [token, token + 1]];
    else if (this.span) this.span = null;
    else this.whole = true;
    this.draw();
    this.focus();
  }

  /** One token more or less of the reply. */
  widen(by) {
    if (!this.span) return;
    this.span = [this.span[0], Math.max(this.span[0] + 1, this.span[1] + by)];
    this.draw();
    this.focus();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const done = (run) => {
      event.preventDefault();
      event.stopPropagation();
      run();
    };
    if (event.target === this.note || event.target === this.by) {
      if (event.key === "Escape") done(() => this.focus());
      else if (event.key === "Enter" && !event.shiftKey && event.target === this.note) done(() => this.submit(event));
      return;
    }
    const choices = event.target.closest(".choices");
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (choices && step) {
      const all = [...choices.children];
      done(() => all[(all.indexOf(event.target) + step + all.length) % all.length].focus());
      return;
    }
    const verdict = [...this.letters].find(([, letter]) => letter && letter === event.key)?.[0];
    if (/^[1-5]$/.test(event.key)) done(() => this.set("stars", Number(event.key)));
    else if (event.key === "0") done(() => this.draft.stars !== null && this.set("stars", this.draft.stars));
    else if (verdict) done(() => this.set("verdict", verdict));
    else if (event.key === "n") done(() => this.note.focus());
    else if (event.key === "t") done(() => this.turn());
    else if (event.key === "[") done(() => this.widen(-1));
    else if (event.key === "]") done(() => this.widen(1));
    else if (event.key === "x") done(() => this.send({ withdraw: ["stars", "verdict", "note"] }));
    else if (event.key === "Escape") done(() => this.close());
    else if (event.key === "Enter" && choices) done(() => this.submit(event)); // buttons outside the choices answer to Enter themselves
  }

  submit(event) {
    event.preventDefault();
    if (!this.draftGiven) {
      put(this.said, "Give stars (1 to 5), a verdict or a note first");
      return;
    }
    this.send(this.draft);
  }

  async send(given) {
    const by = this.by.value.trim();
    if (!by) {
      put(this.said, "Write your name first: labels say who gave them");
      this.by.focus();
      return;
    }
    localStorage.setItem("author", by);
    const place = this.place;
    try {
      this.take(await post("label", { place, by, ...given }));
      toast(given.withdraw ? `Taken back: what ${by} said of ${place}` : `Saved: ${place} by ${by}`);
      this.close();
    } catch (error) {
      put(this.said, failure(error));
    }
  }
}
