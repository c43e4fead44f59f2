// Fork here: what is changed at the place, how it is sampled, the line that does the same, and the branches as they arrive.

import { get, name, post } from "./api.js";
import { button, copy, failure, h, later, plain, put, said } from "./dom.js";
import { plural } from "./format.js";
import { drawJob } from "./job.js";
import { tokensOf } from "./tokens.js";

const CHANGES = {
  ask: { again: "Sample again", prefix: "Force first words", reply: "Write the reply", say: "Edit a message" },
  act: { again: "Go on as it was", result: "Change what the world answers", act: "Act first" },
};

export class ForkPanel {
  /** ways: close() hides the panel; path(seq) gives a Call of the run. */
  constructor(root, store, ways) {
    Object.assign(this, { root, store, ways, jobs: new Map(), change: "again" });
    this.preview = later(200, () => this.showCommand());
  }

  focus() {
    this.root.querySelector("select, input, textarea")?.focus();
  }

  /** The place to fork at; what was typed stays while the place stays. */
  async at(run, call, token) {
    if (!call) return;
    const same = this.run === run && this.call?.seq === call.seq && this.token === token;
    Object.assign(this, { run, call, token });
    if (same && this.root.childElementCount) return;
    const kinds = Object.keys(CHANGES[call.kind] ?? { again: "" });
    this.change = token !== null ? "prefix" : kinds.includes(this.change) && this.change !== "prefix" ? this.change : "again";
    this.draw();
    if (!this.asked) {
      this.asked = true;
      for (const job of await get("jobs").catch(() => [])) this.heard(job);
    }
  }

  draw() {
    const { call, token } = this;
    const place = `${this.run}@${call.seq}${token ? `+${token}` : ""}`;
    const kinds = CHANGES[call.kind] ?? { again: "Go on from here" };
    this.fields = {};
    const choose = h("select", { "aria-label": "What is changed", on: { change: () => ((this.change = choose.value), this.drawChange(), this.preview()) } },
      Object.entries(kinds).map(([value, label]) => h("option", { value, selected: value === this.change }, label)));
    this.changeBox = h("div", { class: "change" });
    this.command = h("output", { class: "command mono" });
    this.trouble = h("div", {}); // why there is no command line
    this.refusal = h("div", {}); // why nothing was run; a command line that comes later does not take it away
    this.go = button("Run the fork", () => this.run_(), { class: "primary" });
    this.jobBox ??= h("div", { class: "jobs", "aria-live": "polite" });
    const form = h("form", { class: "forkform", on: { input: this.preview, submit: (event) => (event.preventDefault(), this.run_()) } },
      h("label", {}, "Change", choose), this.changeBox, h("div", { class: "pair" },
        this.field("n", "Samples", { type: "number", min: 1, max: 256, value: 4 }), this.seed()),
      this.field("model", "Model", { placeholder: "the recorded one, with its present weights", spellcheck: "false" }),
      h("div", { class: "three" },
        this.field("temperature", "Temperature", { type: "number", step: "any", min: 0, placeholder: "as it was" }),
        this.field("top_p", "Top p", { type: "number", step: "any", min: 0, max: 1, placeholder: "as it was" }),
        this.field("max_tokens", "Max tokens", { type: "number", min: 1, placeholder: "as it was" })),
      h("label", { class: "check" }, (this.fields.keep = h("input", { type: "checkbox" })), "Keep later replies where they still come up"));
    put(this.root,
      h("h2", {}, "Fork at ", h("span", { class: "id" }, plain(place)), button("Close", this.ways.close, { class: "quiet" })),
      form, h("div", { class: "shell" }, this.command, button("Copy", () => copy(this.line), { class: "quiet" })),
      this.trouble, this.refusal, this.go, this.jobBox);
    this.drawChange();
    this.showCommand();
  }

  field(key, label, props) {
    this.fields[key] = h("input", { type: "text", name: key, ...props });
    return h("label", {}, label, this.fields[key]);
  }

  seed() {
    const choices = { "": "default", same: "same", fresh: "fresh", number: "a number" };
    const exact = h("input", { type: "number", hidden: true, "aria-label": "Number of the seed", value: 1 });
    const choose = h("select", { name: "seed", "aria-label": "Seed", on: { change: () => (exact.hidden = choose.value !== "number") } }, Object.entries(choices).map(([value, label]) => h("option", { value }, label)));
    this.fields.seed = { get value() { return choose.value === "number" ? Number(exact.value) : choose.value; } };
    return h("div", {}, h("label", {}, "Seed", choose), exact);
  }

  area(key, label, value, rows = 4) {
    const el = h("textarea", { rows, spellcheck: "false", dir: "auto", name: key });
    el.value = value;
    this.fields[key] = el;
    return h("label", {}, label, el);
  }

  drawChange() {
    const { call } = this;
    const text = call.reply?.text ?? "";
    for (const key of ["reply", "prefix", "prefix_ids", "result", "say", "act"]) delete this.fields[key];
    const parts = { again: () => [], reply: () => [this.area("reply", "The whole reply", text)], prefix: () => this.prefixParts(), say: () => this.sayParts(),
      result: () => [this.area("result", "What the world answers", call.text)], act: () => [this.area("act", "Actions to perform first, one a line", "")] };
    put(this.changeBox, parts[this.change]());
  }

  /** The first tokens, up to the chosen one, as they are, and what is forced after them. */
  prefixParts() {
    const tokens = tokensOf(this.call);
    const kept = this.token ?? 0;
    const text = tokens.slice(0, kept).map((token) => token.text ?? `⟨${token.id}⟩`).join("");
    const spelled = tokens.slice(0, kept).every((token) => token.text !== null);
    const as = h("select", { name: "as", "aria-label": "Force as" }, spelled && h("option", { value: "text" }, "text"), tokens.length > 0 && h("option", { value: "ids" }, "token ids"));
    const area = this.area("prefix", "Then force", "", 2);
    this.fields.as = as;
    const keptNote = kept
      ? h("div", { class: "keptnote" }, h("span", { class: "dim" }, `Keeps ${plural(kept, "token")}: `), said(text, { class: "tok forced" }))
      : h("p", { class: "hint" }, tokens.length ? "Choose a token of the reply to keep what comes before it, or type the first words." : "Type the first words of the reply; the rest is sampled.");
    return [keptNote, area, h("label", { class: "inline" }, "given as ", as)];
  }

  sayParts() {
    const said_ = this.call.said ?? [];
    if (!said_.length) return [h("p", { class: "hint" }, "Nothing was said between the last reply and this one.")];
    const key = (m) => (m.index === null ? m.key : m.conversation ? `${m.conversation}.${m.index}` : String(m.index));
    const area = this.area("say", "Its new text; empty drops it", said_[0].text);
    const choose = h("select", { "aria-label": "Message", on: { change: () => (this.fields.say.value = said_[choose.selectedIndex].text) } },
      said_.map((m) => h("option", { value: key(m) }, plain(`${m.index ?? ""} ${m.role}: ${m.text.slice(0, 40)}`))));
    this.fields.which = choose;
    return [h("label", {}, "Message", choose), area];
  }

  /** What the server is asked for; empty fields mean as it was. */
  request() {
    const f = this.fields;
    const given = (key) => (f[key]?.value === "" || f[key] === undefined ? null : Number(f[key].value));
    const out = {
      run: this.run, seq: this.call.seq, token: 0, n: given("n") ?? 1, reply: null, prefix: null, prefix_ids: null, result: null, say: null, act: null,
      model: f.model.value.trim() || null, temperature: given("temperature"), top_p: given("top_p"), max_tokens: given("max_tokens"), seed: f.seed.value, keep: f.keep.checked,
    };
    if (f.reply) out.reply = f.reply.value;
    if (f.result) out.result = f.result.value;
    if (f.say) out.say = { [f.which.value]: f.say.value === "" ? null : f.say.value };
    if (f.act) out.act = f.act.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (this.change === "prefix") this.force(out);
    return out;
  }

  force(out) {
    const kept = tokensOf(this.call).slice(0, this.token ?? 0);
    const more = this.fields.prefix.value;
    if (!more) out.token = this.token ?? 0;
    else if (this.fields.as.value === "ids") out.prefix_ids = [...kept.map((token) => token.id), ...more.split(/[\s,]+/).filter(Boolean).map(Number)];
    else out.prefix = kept.map((token) => token.text).join("") + more;
  }

  async showCommand() {
    const asked = (this.count = (this.count ?? 0) + 1);
    try {
      const { command } = await post("fork/command", this.request());
      if (asked !== this.count) return;
      this.line = command;
      put(this.command, command.split(/(?<= )/).map((word) => h("span", { class: word.length < 36 ? "word" : "" }, plain(word))));
      put(this.trouble);
      this.go.disabled = false;
      put(this.go, `Run ${plural(this.request().n, "fork")}`);
    } catch (error) {
      if (asked !== this.count) return;
      put(this.command, "");
      put(this.trouble, failure(error));
      this.go.disabled = true;
    }
  }

  async run_() {
    this.go.disabled = true;
    put(this.refusal);
    try {
      this.heard(await post("fork", this.request()));
    } catch (error) {
      put(this.refusal, failure(error));
    }
    this.go.disabled = false;
  }

  /** A fork that was asked for here, or by another page, moved on. */
  heard(job) {
    if (this.jobs.get(job.id)?.told > job.told) return; // an answer that was overtaken by an event
    this.jobs.set(job.id, job);
    if (!this.jobBox) return;
    const mine = [...this.jobs.values()].filter((one) => one.run === this.run).reverse().slice(0, 20);
    put(this.jobBox, mine.map((one) => drawJob(one, this.run, () => this.stop(one))));
  }

  async stop(job) {
    try {
      this.heard(await post(`jobs/${name(job.id)}/stop`));
    } catch (error) {
      put(this.refusal, failure(error));
    }
  }
}
