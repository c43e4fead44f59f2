// A tool call as a card: its name, its arguments, how long it took, and what came back, errors in red.
//
// What a model and a tool say is hostile: it enters through text nodes alone, is folded past a dozen lines, and nothing of
// it is fetched. Images are those of the record, which the server reads and checks.

import { imagePath } from "./api.js";
import { button, h, plain, said, visible } from "./dom.js";
import { bytes, plural, seconds, whole } from "./format.js";
import { jsonLines } from "./jsontext.js";
import { RESULT, isOpen, logs, long, open } from "./longtext.js";

const NAMES = 12; // tool calls that one reply names
const KNOWN = ["world", "model", "system", "user", "assistant", "tool", "act", "call", "thought", "error", "child", "end", ""];
const [WIDE, TALL] = [420, 300]; // pixels of an image in the transcript at most
const ROWS = 2_000; // lines of one JSON value that are drawn

/** A part of a Call: who says it, and what. */
export function part(role, ...body) {
  return h("div", { class: `part as-${KNOWN.includes(role) ? role || "rest" : "other"}` }, h("span", { class: "role" }, plain(role)), h("div", { class: "body" }, body));
}

/** Items as they are drawn, those that belong side by side in one row of cards. */
export function together(items, beside, draw) {
  const out = [];
  items.forEach((item, i) => {
    const drawn = draw(item, i);
    if (!beside(item)) out.push(drawn);
    else if (i && beside(items[i - 1])) out.at(-1).append(drawn);
    else out.push(h("div", { class: "cards" }, drawn));
  });
  return out;
}

/** The tools that a reply calls, each a link to the Call that performed it. */
export function callsLine(tools, href) {
  const link = (tool, i) => [i ? ", " : "", h("a", { href: href(tool.act) }, said(tool.name))];
  const rest = tools.length > NAMES && h("span", { class: "dim" }, ` and ${plural(tools.length - NAMES, "more")}`);
  return part("", h("span", { class: "calls" }, h("span", { class: "dim" }, tools.length > 1 ? `${tools.length} calls: ` : "calls "), tools.slice(0, NAMES).map(link), rest));
}

/** The name and the arguments of a tool call; `done` is the Call that performed it, where one did. */
export function callPart(tool, call, ctx, done = null) {
  const state = done && [
    done.done < 0 ? h("span", { class: "tag" }, "no result yet") : null,
    done.started && done.done >= 0 ? h("span", { class: "took", title: "wall time" }, seconds(done.seconds)) : null,
    done.failed ? h("span", { class: "tag bad" }, "error") : null,
  ];
  return part("call", h("div", { class: "toolcall" }, h("span", { class: "toolname" }, said(tool.name)), state, given(tool, call, ctx)));
}

/** Arguments: JSON line by line, anything else as the model wrote it. */
function given(tool, call, ctx) {
  if (tool.text === "" || tool.text === "{}") return null;
  const what = `arguments ${tool.id}`;
  return h("div", { class: "args" }, pretty(tool.text, tool.cut, call, ctx, what) ?? logs(call, ctx, what, RESULT)(tool.text),
    tool.cut && h("div", { class: "foot" }, h("span", { class: "dim" }, `cut, ${bytes(tool.cut)} in all`)));
}

/** What a tool gave back. it: {text, cut, path, parts, failed, name}; `nth` tells several results of one Call apart. */
export function resultPart(it, call, ctx, nth = 0) {
  const what = `result ${nth}`;
  const draw = (text) => pretty(text, it.cut, call, ctx, what) ?? logs(call, ctx, what, RESULT)(text);
  const head = it.name ? h("div", { class: "resulthead" }, said(it.name), it.failed && h("span", { class: "tag bad" }, "error")) : null;
  const nothing = it.text || it.parts?.length || it.done < 0 ? null : h("em", { class: "dim" }, "nothing");
  const el = part("tool", head, nothing ?? (it.text ? long(it.text, it.cut, it.path, draw) : null), attached(it));
  if (it.failed) el.classList.add("failed");
  return el;
}

/** A JSON value in lines, folded past a dozen; null where it is none, or where texts are wanted as they were written. */
function pretty(text, cut, call, ctx, what) {
  const lines = !cut && ctx.markdown !== false && /^\s*[[{]/.test(text) ? jsonLines(text) : null;
  if (!lines) return null;
  const row = ({ depth, text: one, inner }) => h("div", { class: inner ? "in" : "", style: { "--deep": Math.min(depth, 12) } }, visible(one));
  const all = lines.length <= RESULT.tall || isOpen(call, what) || (ctx.sought && text.toLowerCase().includes(ctx.sought));
  const box = h("div", { class: "said json", dir: "ltr" });
  const rest = (n) => button(`Show ${plural(n, "more line")}`, () => {
    open(call, what);
    box.replaceChildren(...drawn(lines.length));
  }, { class: "more" });
  const drawn = (most) => {
    const few = lines.slice(0, Math.min(most, ROWS));
    const left = lines.length - few.length;
    return [...few.map(row), ...(left ? [most > ROWS ? h("span", { class: "dim" }, `and ${plural(left, "line")}`) : rest(left)] : [])];
  };
  box.append(...drawn(all ? lines.length : RESULT.head));
  return box;
}

/** Images of a message or of what a Call showed, which the server reads from the record, and other parts by their names. */
export function attached({ parts, key }) {
  if (!parts?.length) return null;
  return h("div", { class: "images" }, parts.map((one, at) => {
    if (!one.image) return h("span", { class: "tag" }, plain([one.kind, one.bytes ? `${whole(one.size)} bytes` : bytes(one.size), one.note].filter(Boolean).join(", ")));
    const src = imagePath(at, one.key ?? key, one.call);
    const title = `${one.image}, ${one.width} × ${one.height}, ${whole(one.size)} bytes`;
    const wide = one.width * Math.min(1, WIDE / one.width, TALL / one.height); // known before it is loaded, so that nothing moves when it is
    const picture = h("img", { src, alt: `image ${title}`, width: one.width, height: one.height, style: { "--wide": `${wide}px` }, loading: "lazy" });
    picture.addEventListener("error", () => picture.replaceWith(h("span", { class: "tag" }, `${title}, cannot be drawn`)), { once: true });
    return h("a", { href: src, target: "_blank", rel: "noopener noreferrer", title }, picture);
  }));
}
