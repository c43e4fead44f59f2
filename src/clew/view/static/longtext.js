// Long texts of a transcript: folded to their two ends, cut where they are very long, and shown whole when asked for.

import { wholeText } from "./api.js";
import { button, failure, h, put, said, visible } from "./dom.js";
import { bytes, whole as count } from "./format.js";
import { markdown } from "./markdown.js";

const PIECE = 100_000; // characters added at once to a text that was cut
const LINE = 160; // characters that count as a line of a fold: a line may be a whole file
export const LOG = { tall: 60, head: 20, tail: 12 }; // lines of a text that is folded, and of its two ends that are shown
export const RESULT = { tall: 12, head: 8, tail: 3 }; // the same of what a tool is given and gives

const opened = new WeakMap(); // by Call the names of its texts that were unfolded: they stay so while it is in memory

export const isOpen = (call, what) => Boolean(opened.get(call)?.has(what));

export function open(call, what) {
  if (!opened.has(call)) opened.set(call, new Set());
  opened.get(call).add(what);
}

/** The two ends of a text and what is said of the middle; null where the text is short. */
export function ends(text, { tall, head, tail }) {
  const lines = text.split("\n");
  if (lines.length > tall) {
    const most = (part, from) => (part.length > tall * LINE ? (from ? part.slice(-tall * LINE) : part.slice(0, tall * LINE)) : part);
    return [most(lines.slice(0, head).join("\n")), `Show the ${count(lines.length - head - tail)} lines between`, most(lines.slice(-tail).join("\n"), true)];
  }
  if (text.length <= 2 * tall * LINE) return null;
  return [text.slice(0, head * LINE), `Show the ${count(text.length - (head + tail) * LINE)} characters between`, text.slice(-tail * LINE)];
}

/** How a text is drawn as it was written: where it has many lines, its two ends, and the rest when asked for. */
export const logs = (call, ctx, what = "text", fold = LOG) => (text) => {
  const parts = isOpen(call, what) || (ctx.sought && text.toLowerCase().includes(ctx.sought)) ? null : ends(text, fold);
  if (!parts) return said(text);
  const [head, label, tail] = parts;
  const box = h("div", { class: "folded" }, said(head), button(label, () => {
    open(call, what);
    box.replaceWith(said(text));
  }, { class: "more" }), said(tail));
  return box;
};

/** How a message is drawn: as its Markdown means it, where it has any and that is wanted. */
export const messages = (call, ctx) => (text) => (ctx.markdown && markdown(text, logs(call, ctx))) || logs(call, ctx)(text);

/** A text, cut where it is very long, with controls for the rest: piece by piece, or as plain text in a tab of its own. */
export function long(text, cut, path, draw) {
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

