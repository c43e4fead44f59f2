// A patch of one file: in one column as a unified diff, or in two with equal lines side by side.
//
// Names and lines are another program's: they enter through text nodes alone, hidden characters are shown as symbols, and
// what changed is said by a sign in the text as well as by colour.

import { button, failure, h, plain, put, said } from "./dom.js";
import { plural, whole } from "./format.js";

const LONG = 320; // characters of a path that are shown at once
export const SIGNS = { "+": ["A", "added"], "-": ["D", "deleted"], "*": ["M", "changed"] };
const UNENDED = "\n"; // the row that says that a text has no newline at its end

/** A name or a path in one line: newlines and tabs in it are shown, the middle of a very long one is left out. */
export function fileName(path, props = {}) {
  const shown = path.length > LONG ? `${path.slice(0, LONG - 100)} … ${path.slice(-80)}` : path;
  const box = said("", { ...props, title: plain(oneLine(path)).slice(0, 4000) });
  for (const [i, piece] of shown.split(/([\n\t])/).entries())
    box.append(...(i % 2 ? [h("span", { class: "ctl" }, oneLine(piece))] : [...said(piece).childNodes]));
  return box;
}

export const oneLine = (text) => text.replaceAll("\n", "␊").replaceAll("\t", "␉");

/** What became of a path, as a letter with its meaning. */
export function signTag(sign) {
  const [letter, meaning] = SIGNS[sign] ?? ["", "as it was"];
  return h("span", { class: `sign ${meaning}`, title: meaning }, h("span", { "aria-hidden": "true" }, letter), h("span", { class: "hidden" }, meaning));
}

/** Lines that came and went; nothing where they were not counted. */
export function plusMinus({ plus, minus }) {
  if (!plus && !minus) return null;
  return h("span", { class: "plusminus" }, plus > 0 && h("span", { class: "plus", title: plural(plus, "line") + " added" }, `+${whole(plus)}`), minus > 0 && h("span", { class: "minus", title: plural(minus, "line") + " removed" }, `−${whole(minus)}`));
}

/**
 * One file of a patch. columns: draw it in two. href: the page of the file. again({whole}) -> the file with all of its
 * changes, or with its unchanged lines too; absent where that is what is drawn.
 */
export function drawPatch(file, { columns = false, href = null, again = null, head = true } = {}) {
  const body = h("div", { class: "patchbody" });
  const meaning = SIGNS[file.sign]?.[1] ?? "changed";
  const box = h("section", { class: "patchfile", "aria-label": `${plain(oneLine(file.path)).slice(0, 200)}, ${meaning}` });
  const gaps = file.hunks.length > 0 && file.sign === "*";
  const cut = again && gaps && !file.whole;
  const all = cut && button("All lines", () => redraw(true), { class: head ? "quiet" : "more", title: "Show the lines that did not change, too" });
  const redraw = async (whole) => {
    try {
      const more = await again({ whole });
      box.replaceWith(drawPatch(more, { columns, href, head, again: whole ? null : again }));
    } catch (error) {
      box.append(failure(error));
    }
  };
  const lone = head && !file.hunks.length; // nothing but a line or two of words: they stand in the head
  const words = [...notes(file)].map((note) => h("p", { class: "patchnote" }, note));
  const title = head && h("header", { class: "patchhead" }, signTag(file.sign), h("span", {}, fileName(file.path), file.kind === "d" && h("span", { class: "dim" }, "/")), plusMinus(file), lone && words,
    h("span", { class: "patchlinks" }, all, href && h("a", { href }, "File")));
  const gapLine = (gap) => h("div", { class: "dh" }, cut ? button(plural(gap, "equal line"), () => redraw(true), { class: "more", title: "Show all lines of the file" }) : plural(gap, "equal line"));
  put(body, columns ? twoColumns(file, gapLine) : oneColumn(file, gapLine));
  const rest = file.rest > 0 && h("div", { class: "patchrest" }, h("span", { class: "dim" }, `${plural(file.rest, "more line")} changed or around a change `), again && button("Show them", () => redraw(false), { class: "more" }));
  put(box, title, lone ? null : words, file.hunks.length > 0 && body, rest, !head && all && h("div", { class: "patchrest" }, all));
  return box;
}

function* notes(file) {
  if (file.note) yield file.note;
  for (const note of file.notes) yield said(note);
  if (file.hunks.length || file.note || file.notes.length) return;
  yield file.sign === "+" ? "an empty file" : file.sign === "-" ? "an empty file was deleted" : "its lines are the same";
}

/** Rows of a unified diff. */
function oneColumn(file, gapLine) {
  const out = [];
  for (const { hunk, gap } of withGaps(file)) {
    if (gap > 0) out.push(gapLine(gap));
    let [old, fresh] = [hunk.old, hunk.new];
    for (const row of hunk.rows) {
      const [sign] = row;
      const none = row[1] === UNENDED;
      out.push(h("div", { class: `dl ${kind(sign)}` }, no(sign === "+" || none ? "" : old), no(sign === "-" || none ? "" : fresh), mark(sign), text(row)));
      if (!none && sign !== "+") old += 1;
      if (!none && sign !== "-") fresh += 1;
    }
  }
  return out;
}

/** Rows in which what stands beside each other is equal, or was replaced by the other. */
function twoColumns(file, gapLine) {
  const out = [];
  for (const { hunk, gap } of withGaps(file)) {
    if (gap > 0) out.push(gapLine(gap));
    let [old, fresh] = [hunk.old, hunk.new];
    for (const [left, right] of pairs(hunk.rows)) {
      out.push(h("div", { class: "dl two" }, cell(left, left && left[1] !== UNENDED ? old : ""), cell(right, right && right[1] !== UNENDED ? fresh : "")));
      if (left && left[1] !== UNENDED) old += 1;
      if (right && right[1] !== UNENDED) fresh += 1;
    }
  }
  return out;
}

function cell(row, number) {
  if (!row) return [no(""), h("span", { class: "sg" }), h("span", { class: "tx void" })];
  const [n, s, t] = [no(number), mark(row[0]), text(row)];
  for (const el of [n, s, t]) el.classList.add(kind(row[0]) || "same");
  return [n, s, t];
}

/** Rows as pairs of what stands left and right; null where nothing does. */
function pairs(rows) {
  const out = [];
  for (let i = 0; i < rows.length; ) {
    if (rows[i][0] === " ") {
      out.push([rows[i], rows[i]]);
      i += 1;
      continue;
    }
    const [gone, come] = [[], []];
    for (; i < rows.length && rows[i][0] !== " "; i++) (rows[i][0] === "-" ? gone : come).push(rows[i]);
    for (let k = 0; k < Math.max(gone.length, come.length); k++) out.push([gone[k] ?? null, come[k] ?? null]);
  }
  return out;
}

/** Hunks with how many equal lines are left out before each. */
function* withGaps(file) {
  let end = 1;
  for (const hunk of file.hunks) {
    yield { hunk, gap: hunk.old - end };
    end = hunk.old + hunk.rows.filter(([sign, line]) => sign !== "+" && line !== UNENDED).length;
  }
}

const kind = (sign) => ({ "+": "add", "-": "del" })[sign] ?? "";
const no = (number) => h("i", { class: "no", data: number === "" ? {} : { n: number } });
const mark = (sign) => h("span", { class: "sg" }, sign === "-" ? "−" : sign);

function text([, line, more]) {
  if (line === UNENDED) return h("span", { class: "tx dim" }, "no newline at the end");
  return h("span", { class: "tx" }, said(line), more > 0 && h("span", { class: "dim" }, ` and ${plural(more, "more character")}`));
}
