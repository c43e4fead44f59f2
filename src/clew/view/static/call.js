// One Call of a transcript: what was seen, said and done there.

import { textPath, wholeText } from "./api.js";
import { button, failure, h, plain, put, said, visible } from "./dom.js";
import { bytes, number, plural, whole as count } from "./format.js";
import { labelTags } from "./labels.js";
import { markdown } from "./markdown.js";
import { drawTokens } from "./tokens.js";

const PIECE = 100_000; // characters added at once to a text that was cut
const [TALL, HEAD, TAIL] = [60, 20, 12]; // lines of a text that is folded, and of its two ends that are shown
const FORKS = 8; // forks of a Call that are named at once
const opened = new WeakSet(); // Calls that were unfolded

/**
 * ctx: {run, shade, selected, token, before(call) -> the Call before it, forks: Map seq -> runs, choose(seq, token),
 * markdown: whether messages are shown as their Markdown means them, sought: a text that no fold may hide}.
 */
export function drawCall(call, ctx) {
  const chosen = ctx.selected === call.seq;
  const shared = call.run !== ctx.run;
  const el = h(
    "article",
    {
      class: `call ${call.kind} ${shared ? "shared" : ""} ${call.error ? "failed" : ""}`,
      "aria-current": chosen ? "true" : null, "aria-label": `Call ${call.seq}, ${call.kind}`, data: { seq: call.seq },
    },
    h("a", { class: "seq", href: place(ctx.run, call.seq), title: shared ? `shared with ${call.run}` : `Call ${call.seq}`, tabindex: -1 }, `@${call.seq}`),
    h("div", { class: "parts" }, BODIES[call.kind]?.(call, ctx, chosen) ?? quiet(call), call.error && part("error", said(call.error)), forks(ctx, call)),
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

export function place(run, seq, token = null) {
  return `#/run/${encodeURIComponent(run)}@${seq}${token === null ? "" : `+${token}`}`;
}

/** #/run/ID@SEQ+TOKEN as its parts. */
export function cursor(text) {
  const [, run, seq, token] = text.match(/^(.*?)(?:@(\d+)(?:\+(\d+))?)?$/);
  return { run, seq: seq === undefined ? null : Number(seq), token: token === undefined ? null : Number(token) };
}

const BODIES = {
  open: (call, ctx) => [part("world", call.text ? long(call.text, call.cut, whole(call), logs(call, ctx)) : h("em", { class: "dim" }, "opened, nothing to see"))],
  ask,
  act,
  spawn: (call) => [part("child", h("a", { href: `#/run/${encodeURIComponent(call.child)}` }, plain(call.child)), " ", said(call.action, { class: "dim" }))],
  end: (call) => [part("end", h("strong", {}, plain(call.action.replaceAll("_", " "))))],
};

function ask(call, ctx, chosen) {
  const chat = call.conversation > 0 ? h("span", { class: "tag" }, `chat ${call.conversation}`) : null;
  const before = (call.said ?? []).filter((message) => !message.passed);
  const out = before.map((message) => part(message.role, long(message.text, message.cut, textPath(message.key), message.role === "tool" ? logs(call, ctx) : messages(call, ctx)), attached(message)));
  if (!call.reply) return [...out, part("model", h("em", { class: "dim" }, call.done < 0 ? "asked, no answer yet" : "no answer"))];
  const { text, cut, key, reasoning, calls, tokens } = call.reply;
  if (reasoning) out.push(part("thought", h("details", { open: chosen }, h("summary", {}, bytes(reasoning.length)), messages(call, ctx)(reasoning))));
  const drawn = tokens && !cut ? drawTokens(call, ctx.shade, chosen ? ctx.token : -1) : null;
  const spelled = drawn && tokens.every(([piece]) => piece !== null);
  const body = spelled ? drawn : [long(text, cut, textPath(key), messages(call, ctx)), drawn];
  if (text || tokens || !calls?.length) out.push(part("model", chat, body, attached(call.reply)));
  for (const tool of calls ?? []) out.push(part("call", drawTool(tool)));
  if (call.samples) out.push(part("", h("span", { class: "dim" }, `and ${plural(call.samples, "more sample")} of the same request`)));
  return out;
}

/** Images and files of a message, named: nothing that a run holds is fetched or drawn. */
function attached({ parts }) {
  return (parts ?? []).map((one) => h("span", { class: "tag" }, plain(one)));
}

/** A tool call: its name, and its arguments as they were written, or indented where they are JSON. */
export function drawTool({ name, arguments: given }) {
  let text = given;
  try {
    const value = JSON.parse(given);
    text = JSON.stringify(value, null, given.length > 60 ? 2 : 0);
  } catch { /* shown as the model wrote it */ }
  return h("span", { class: "toolcall" }, h("b", {}, said(name)), said(text.length > 20_000 ? `${text.slice(0, 20_000)} …` : text, { class: "args" }));
}

function act(call, ctx) {
  const prior = ctx.before?.(call);
  const echo = prior?.reply && (prior.reply.text.trim() === call.action.trim() || (call.tool && prior.reply.calls?.length === 1));
  const done = echo ? null : part("act", said(call.action, { class: "did" }));
  const end = call.terminal ? h("span", { class: "tag" }, "the world ended") : null;
  return [done, part(call.tool ? "tool" : "world", long(call.text, call.cut, whole(call), logs(call, ctx)), end)];
}

function quiet(call) {
  return [part(call.kind, call.action && said(`${call.action} `), said(call.text, { class: "dim" }))];
}

function part(role, ...body) {
  const known = ["world", "model", "system", "user", "assistant", "tool", "act", "call", "thought", "error", "child", "end", ""].includes(role);
  return h("div", { class: `part as-${known ? role || "rest" : "other"}` }, h("span", { class: "role" }, plain(role)), h("div", { class: "body" }, body));
}

const whole = (call) => textPath("", `${call.run}@${call.seq}`);

/** How a text is drawn as it was written: where it has many lines, its two ends, and the rest when asked for. */
const logs = (call, ctx) => (text) => {
  const lines = text.split("\n");
  if (lines.length <= TALL || opened.has(call) || (ctx.sought && text.toLowerCase().includes(ctx.sought))) return said(text);
  const show = button(`Show the ${count(lines.length - HEAD - TAIL)} lines between`, () => {
    opened.add(call);
    box.replaceWith(said(text));
  }, { class: "more" });
  const box = h("div", { class: "folded" }, said(lines.slice(0, HEAD).join("\n")), show, said(lines.slice(-TAIL).join("\n")));
  return box;
};

/** How a message is drawn: as its Markdown means it, where it has any and that is wanted. */
const messages = (call, ctx) => (text) => (ctx.markdown && markdown(text, logs(call, ctx))) || logs(call, ctx)(text);

/** A text, cut where it is very long, with controls for the rest: piece by piece, or as plain text in a tab of its own. */
function long(text, cut, path, draw) {
  let body = draw(text);
  if (!cut) return body;
  let rest = null;
  let at = text.length;
  const more = button(`Show ${bytes(Math.min(PIECE, cut - at))} more`, async () => {
    more.disabled = true;
    try {
      rest ??= await wholeText(path);
      if (at === text.length) body.replaceWith((body = said(text))); // from here on as it was written
      body.append(...visible(rest.slice(at, (at += PIECE))));
      put(more, `Show ${bytes(Math.min(PIECE, Math.max(rest.length - at, 0)))} more`);
      more.disabled = false;
      if (at >= rest.length) foot.remove();
    } catch (error) {
      foot.append(failure(error));
    }
  }, { class: "more" });
  const tab = h("a", { href: path, target: "_blank", rel: "noopener noreferrer" }, "All as plain text");
  const foot = h("div", { class: "foot" }, h("span", { class: "dim" }, `cut, ${bytes(cut)} in all`), more, tab);
  return h("div", {}, body, foot);
}

function aside(call, ctx) {
  const out = [];
  if (call.kind === "ask" && ctx.shade) {
    const value = ctx.shade.ofCall(call);
    if (value !== null && value !== undefined) {
      const el = h("span", { class: "val", title: plain(ctx.shade.name === "logprob" ? "sum of logprobs, nats" : ctx.shade.name) }, ctx.shade.show(value));
      out.push(ctx.shade.name === "logprob" ? el : ctx.shade.paint(el, value));
    }
  }
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
  const few = opened.has(call) ? runs : runs.slice(0, FORKS);
  const rest = runs.length > few.length && button(`Show the other ${count(runs.length - few.length)}`, () => {
    opened.add(call);
    rest.replaceWith(...runs.slice(few.length).map(link));
  }, { class: "more" });
  return h("div", { class: "forks" }, h("span", { class: "tag fork" }, plural(runs.length, "fork")), few.map(link), rest);
}
