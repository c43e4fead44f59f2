// One Call of a transcript: what was seen, said and done there.

import { textPath } from "./api.js";
import { button, h, plain, said } from "./dom.js";
import { bytes, number, plural, seconds, whole as count } from "./format.js";
import { labelTags } from "./labels.js";
import { isOpen, logs, long, messages, open } from "./longtext.js";
import { recall } from "./recall.js";
import { drawTokens } from "./tokens.js";
import { attached, callPart, callsLine, part, resultPart, together } from "./toolcard.js";

const FORKS = 8; // forks of a Call that are named at once

/**
 * ctx: {run, shade, selected, token, before(call) -> the Call before it, forks: Map seq -> runs, choose(seq, token),
 * markdown: whether messages are shown as their Markdown means them, sought: a text that no fold may hide,
 * files(call) -> what the Call changed in the files of its run, drawn}.
 */
export function drawCall(call, ctx) {
  const chosen = ctx.selected === call.seq;
  const shared = call.run !== ctx.run;
  const el = h(
    "article",
    {
      class: `call ${call.kind} ${call.called ? "tool" : ""} ${shared ? "shared" : ""} ${call.error || call.failed ? "failed" : ""}`,
      "aria-current": chosen ? "true" : null, "aria-label": `Call ${call.seq}, ${call.called ? plain(call.called.name).slice(0, 80) : call.kind}${call.error || call.failed ? ", failed" : ""}`, data: { seq: call.seq },
    },
    h("a", { class: "seq", href: place(ctx.run, call.seq), title: shared ? `shared with ${call.run}` : `Call ${call.seq}`, tabindex: -1 }, `@${call.seq}`),
    h("div", { class: "parts" }, BODIES[call.kind]?.(call, ctx, chosen) ?? quiet(call), call.error && part("error", said(call.error)), ctx.files?.(call), forks(ctx, call)),
    h("div", { class: "aside" }, aside(call, ctx)),
  );
  el.addEventListener("click", (event) => {
    if (event.target.closest("a, button, summary, details")) return;
    if (getSelection().toString()) return;
    const token = event.target.closest("[data-token]");
    ctx.choose(call.seq, token ? Number(token.dataset.token) : null);
  });
  return el;
}

/** The first of the tool calls that were made at once with Call `i`, as far as its page of the list reaches. */
export function batchStart(pages, i) {
  const asked = pages.at(i)?.asked ?? null;
  while (asked !== null && i % pages.size && pages.at(i - 1)?.asked === asked) i -= 1;
  return i;
}

/** Call `i` of a list; the tool calls that were made at once with it side by side. */
export function drawBatch(pages, i, ctx) {
  const calls = [pages.at(i)];
  for (let next = i + 1; next % pages.size && batchStart(pages, next) === i; next++) calls.push(pages.at(next));
  const drawn = calls.map((call) => drawCall(call, ctx));
  return drawn.length > 1 ? h("div", { class: "batch", role: "group", "aria-label": `${drawn.length} calls at once` }, drawn) : drawn[0];
}

export function place(run, seq, token = null) {
  return `#/run/${encodeURIComponent(run)}@${seq}${token === null ? "" : `+${token}`}`;
}

/** #/run/ID@SEQ+TOKEN as its parts. */
export function cursor(text) {
  const [, run, seq, token] = text.match(/^(.*?)(?:@(\d+)(?:\+(\d+))?)?$/);
  return { run, seq: seq === undefined ? null : Number(seq), token: token === undefined ? null : Number(token) };
}

const BODIES = {
  open: (call, ctx) => [part("world", call.text ? long(call.text, call.cut, whole(call), logs(call, ctx)) : !call.parts?.length && h("em", { class: "dim" }, "opened, nothing to see"), attached(call))],
  ask,
  act,
  spawn: (call) => [part("child", h("a", { href: `#/run/${encodeURIComponent(call.child)}` }, plain(call.child)), " ", said(call.action, { class: "dim" }))],
  recall: (call) => (call.recalled ? recall(call) : quiet(call)),
  end: (call) => [part("end", h("strong", {}, plain(call.action.replaceAll("_", " "))))],
};

function ask(call, ctx, chosen) {
  const chat = call.conversation > 0 ? h("span", { class: "tag" }, `chat ${call.conversation}`) : null;
  const before = (call.said ?? []).filter((message) => !message.passed);
  const out = together(before, (message) => message.role === "tool", (message, i) => message.role === "tool"
    ? resultPart({ ...message, name: message.tool, path: textPath(message.key) }, call, ctx, i)
    : part(message.role, long(message.text, message.cut, textPath(message.key), messages(call, ctx)), attached(message)));
  if (!call.reply) return [...out, part("model", h("em", { class: "dim" }, call.done < 0 ? "asked, no answer yet" : "no answer"))];
  const { text, cut, key, reasoning, calls, tokens } = call.reply;
  if (reasoning) out.push(part("thought", h("details", { open: chosen }, h("summary", {}, bytes(reasoning.length)), messages(call, ctx)(reasoning))));
  const drawn = tokens && !cut ? drawTokens(call, ctx.shade, chosen ? ctx.token : -1) : null;
  const spelled = drawn && tokens.every(([piece]) => piece !== null);
  const body = spelled ? drawn : [long(text, cut, textPath(key), messages(call, ctx)), drawn];
  if (text || tokens || !calls?.length) out.push(part("model", chat, body, attached(call.reply)));
  const [done, wished] = [(calls ?? []).filter((tool) => tool.act !== null), (calls ?? []).filter((tool) => tool.act === null)];
  if (done.length) out.push(callsLine(done, (seq) => place(ctx.run, seq)));
  out.push(...together(wished, () => true, (tool) => callPart(tool, call, ctx)));
  if (call.samples) out.push(part("", h("span", { class: "dim" }, `and ${plural(call.samples, "more sample")} of the same request`)));
  return out;
}

function act(call, ctx) {
  const end = call.terminal ? h("span", { class: "tag" }, "the world ended") : null;
  if (call.called) return [callPart(call.called, call, ctx, call), resultPart({ ...call, path: whole(call) }, call, ctx), end];
  const echo = ctx.before?.(call)?.reply?.text.trim() === call.action.trim();
  return [echo ? null : part("act", said(call.action, { class: "did" })), part("world", long(call.text, call.cut, whole(call), logs(call, ctx)), attached(call), end)];
}

function quiet(call) {
  return [part(call.kind, call.action && said(`${call.action} `), said(call.text, { class: "dim" }))];
}

const whole = (call) => textPath("", `${call.run}@${call.seq}`);

function aside(call, ctx) {
  const out = [];
  if (call.kind === "ask" && ctx.shade) {
    const value = ctx.shade.ofCall(call);
    if (value !== null && value !== undefined) {
      const el = h("span", { class: "val", title: plain(ctx.shade.name === "logprob" ? "sum of logprobs, nats" : ctx.shade.name) }, ctx.shade.show(value));
      out.push(ctx.shade.name === "logprob" ? el : ctx.shade.paint(el, value));
    }
  }
  if (call.kind === "ask" && call.started && call.seconds >= 0.01) out.push(h("span", { class: "took", title: "wall time" }, seconds(call.seconds)));
  if (call.reward !== null && call.reward !== undefined) out.push(h("span", { class: `val reward ${call.reward > 0 ? "some" : ""}`, title: "reward the world claims" }, number(call.reward)));
  out.push(...labelTags(ctx.labels?.(call.seq)));
  if (call.drift) out.push(h("span", { class: "tag warn", title: "the policy moved away from the weights that sampled this" }, "drift"));
  if (call.forced) out.push(h("span", { class: "tag", title: "tokens given, not sampled" }, `${call.forced} forced`));
  if (call.finish && !["stop", "tool", "tool_calls", "forced"].includes(call.finish)) out.push(h("span", { class: "tag warn" }, plain(call.finish)));
  return out;
}

/** Runs forked at a Call. */
function forks(ctx, call) {
  const runs = ctx.forks?.get(call.seq) ?? [];
  if (!runs.length) return null;
  const link = (run) => h("a", { class: "id", href: `#/run/${encodeURIComponent(run.run)}@${call.seq}`, title: plain(run.edits.join(", ") || "sampled again") }, plain(run.run));
  const few = isOpen(call, "forks") ? runs : runs.slice(0, FORKS);
  const rest = runs.length > few.length && button(`Show the other ${count(runs.length - few.length)}`, () => {
    open(call, "forks");
    rest.replaceWith(...runs.slice(few.length).map(link));
  }, { class: "more" });
  return h("div", { class: "forks" }, h("span", { class: "tag fork" }, plural(runs.length, "fork")), few.map(link), rest);
}
