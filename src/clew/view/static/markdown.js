// Messages as their Markdown means them: paragraphs, headings, lists, emphasis, code. A small subset, made of nodes only.
//
// What a model or a world says is hostile. Nothing here becomes a link, an image or anything else that is fetched or
// followed: links are their text and their address, images are named. Whatever is not understood stays as it was written.
// Every loop passes over a text once, and what nests does so a few levels deep.

import { h, visible } from "./dom.js";

const DEEP = 6; // levels of lists; deeper ones stay as they were written
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const ITEM = /^(?! *(?:[-*_][ \t]*){3,}$)( {0,12})([-*+]|\d{1,9}[.)])([ \t]+)(?=\S)/;
const LINK = /(!?)\[([^[\]\n]{0,500})\]\(([^()\s]{0,2000}(?:\([^()\s]{0,500}\)[^()\s]{0,2000})?(?:[ \t]+"[^"\n]{0,500}")?)\)/y;
const WORD = /[\p{L}\p{N}]/u; // beside it nothing opens or closes: snake_case and 7*7 are no emphasis
const ACTIVE = /[\\`*_![]/g;

/** A text as an element of class `said`; null where it holds no Markdown. `code(text)` draws what a fence holds. */
export function markdown(text, code) {
  const state = { found: false, code };
  const drawn = blocks(text.split("\n"), state, 0);
  return state.found ? h("div", { class: "said markdown", dir: "auto" }, drawn) : null;
}

/** Blocks of some lines. */
function blocks(lines, state, depth) {
  const out = [];
  let plain = [];
  const flush = () => {
    while (plain.length && !plain.at(-1).trim()) plain.pop();
    if (plain.length) out.push(h("p", { dir: "auto" }, inline(plain.join("\n"), state)));
    plain = [];
  };
  for (let i = 0; i < lines.length; ) {
    const line = lines[i];
    const [fence, heading, item] = [line.match(FENCE), line.match(HEADING), depth < DEEP && line.match(ITEM)];
    if (fence || heading || item) {
      flush();
      state.found = true;
    }
    if (fence) {
      const end = closing(lines, i + 1, fence[1]);
      out.push(h("div", { class: "fence" }, fence[2].trim() && h("span", { class: "dim" }, visible(fence[2].trim())), state.code(lines.slice(i + 1, end).join("\n"))));
      i = end + 1;
    } else if (heading) {
      out.push(h("div", { class: "heading", role: "heading", "aria-level": Math.min(6, heading[1].length + 2), dir: "auto" }, inline(heading[2].replace(/[ \t]+#+[ \t]*$/, ""), state)));
      i += 1;
    } else if (item) {
      const [list, next] = items(lines, i, state, depth);
      out.push(list);
      i = next;
    } else {
      if (line.trim() || plain.length) plain.push(line);
      if (!line.trim()) flush();
      i += 1;
    }
  }
  flush();
  return out;
}

/** The line that closes a fence; the number of lines where none does. */
function closing(lines, from, mark) {
  for (let i = from; i < lines.length; i++) {
    const end = lines[i].trim();
    if (end.length >= mark.length && end === mark[0].repeat(end.length)) return i;
  }
  return lines.length;
}

/** A list that begins at a line, and the line after it. Its numbers are those that were written. */
function items(lines, from, state, depth) {
  const list = h("ul", {});
  let i = from;
  const indent = lines[from].match(ITEM)[1].length;
  for (;;) {
    const start = i < lines.length ? lines[i].match(ITEM) : null;
    if (!start || start[1].length < indent) break;
    const inner = start[1].length + start[2].length + 1;
    const own = [lines[i].slice(start[0].length)];
    for (i += 1; i < lines.length; i++) {
      const lead = lines[i].match(/^ */)[0].length;
      const goesOn = lines[i].trim() ? lead > indent : lines[i + 1]?.startsWith(" ".repeat(indent + 1)) && lines[i + 1].trim();
      if (!goesOn) break;
      own.push(lines[i].slice(Math.min(lead, inner)));
    }
    const sign = /[\d+]/.test(start[2]) ? start[2] : "•";
    list.append(h("li", {}, h("span", { class: "sign" }, sign), h("div", {}, blocks(own, state, depth + 1))));
    if (i < lines.length && !lines[i].trim() && ITEM.test(lines[i + 1] ?? "")) i += 1; // a loose list
  }
  return [list, i];
}

/** The parts of a line or paragraph: code, emphasis, links and images by name, and text as it is. */
function inline(text, state, links = true) {
  const parts = []; // nodes and strings; delimiters stay strings until something closes them
  const open = new Map(); // delimiter -> where in `parts` its last opening stands
  const unclosed = new Set(); // lengths of runs of backticks that nothing closes
  let from = 0;
  const keep = (to) => to > from && parts.push(...visible(text.slice(from, to)));
  ACTIVE.lastIndex = 0;
  for (let match; (match = ACTIVE.exec(text)); ) {
    const at = match.index;
    const [node, end] = piece(text, at, { state, links, unclosed, parts, open, keep });
    if (end === at) continue;
    if (node !== undefined) {
      keep(at);
      if (node !== null) parts.push(node);
    }
    from = ACTIVE.lastIndex = end;
  }
  keep(text.length);
  return parts;
}

/** What begins at a character: [node, where it ends]; the same place where nothing does. */
function piece(text, at, it) {
  const char = text[at];
  if (char === "\\") return "*_`".includes(text[at + 1] ?? " ") ? [text[at + 1], at + 2] : [null, at];
  if (char === "`") return codeSpan(text, at, it);
  if (char === "*" || char === "_") return emphasis(text, at, it);
  LINK.lastIndex = at;
  const link = it.links ? LINK.exec(text) : null;
  if (!link) return [null, at];
  const end = LINK.lastIndex;
  it.state.found = true;
  const address = h("span", { class: "address" }, visible(link[3]));
  if (link[1]) return [h("span", { class: "tag" }, "image ", visible(link[2]), " ", address), end];
  return [h("span", { class: "linked" }, inline(link[2], it.state, false), " (", address, ")"), end];
}

function codeSpan(text, at, { state, unclosed }) {
  let length = 1;
  while (text[at + length] === "`") length += 1;
  const end = unclosed.has(length) ? -1 : run(text, at + length, length);
  if (end < 0) {
    unclosed.add(length);
    return ["`".repeat(length), at + length];
  }
  state.found = true;
  return [h("code", {}, visible(text.slice(at + length, end))), end + length];
}

/** Where the next run of exactly so many backticks begins, or -1. */
function run(text, from, length) {
  for (let i = text.indexOf("`", from); i >= 0; i = text.indexOf("`", i)) {
    let end = i;
    while (text[end] === "`") end += 1;
    if (end - i === length) return i;
    i = end;
  }
  return -1;
}

/** A delimiter: it closes the last one of its kind and wraps what lies between, or may be closed later. */
function emphasis(text, at, { state, parts, open, keep }) {
  let end = at;
  while (text[end] === text[at]) end += 1;
  const mark = text.slice(at, end);
  const [before, after] = [text[at - 1] ?? " ", text[end] ?? " "];
  const closes = /\S/.test(before) && !WORD.test(after);
  const opens = /\S/.test(after) && !WORD.test(before);
  if (mark.length > 3 || !(closes || opens)) return [mark, end];
  keep(at);
  const start = closes ? open.get(mark) : undefined;
  if (start !== undefined && start < parts.length - 1) {
    const [, ...held] = parts.splice(start);
    for (const [other, place] of open) if (place >= start) open.delete(other);
    state.found = true;
    const strong = mark.length > 1 ? h("strong", {}, held) : h("em", {}, held);
    parts.push(mark.length > 2 ? h("em", {}, strong) : strong);
  } else {
    if (opens) open.set(mark, parts.length);
    parts.push(mark);
  }
  return [undefined, end];
}
