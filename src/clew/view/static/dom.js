// Building the document. Text only ever enters through text nodes: nothing a model or a world says becomes markup.

/** An element: h("button", {class: "quiet", on: {click}}, "Copy"). `style` sets properties, never an attribute. */
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  return fill(el, props, children);
}

/** The same for a drawing. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(el, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) el.addEventListener(event, run);
    else if (name === "style") for (const [key, set] of Object.entries(value)) el.style.setProperty(key, set);
    else if (name === "data") Object.assign(el.dataset, value);
    else if (name === "value") el.value = value;
    else if (name === "checked" || name === "disabled") el[name] = Boolean(value);
    else el.setAttribute(name, value === true ? "" : String(value));
  }
  el.append(...flat(children));
  return el;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Add the element of item `at` to those drawn of a long list, in reading order: copies and screen readers follow it. */
export function insert(root, drawn, at, el) {
  let next = null;
  for (const [i, other] of drawn) if (i > at && (next === null || i < next[0])) next = [i, other];
  root.insertBefore(el, next?.[1] ?? null);
}

/** Replace what an element holds. */
export function put(el, ...children) {
  el.replaceChildren(...flat(children));
  return el;
}

// The same lists as clew/core/printable.py has, which says what they are; a test compares them.
const CODES =
  "0-8 B-1F 7F-9F AD 34F 600-605 61C 6DD 70F 890-891 8E2 115F-1160 17B4-17B5 180B-180F 200B-200F 2028-202E " +
  "2060-206F 3164 D800-DFFF FE00-FE0F FEFF FFA0 FFF0-FFFB 110BD 110CD 13430-1343F 1BCA0-1BCA3 1D173-1D17A " +
  "E0000-E0FFF";
const SIGNS =
  "AD SHY, 34F CGJ, 61C ALM, 200B ZWSP, 200C ZWNJ, 200D ZWJ, 200E LRM, 200F RLM, 2028 LS, 2029 PS, 202A LRE, 202B " +
  "RLE, 202C PDF, 202D LRO, 202E RLO, 2060 WJ, 2066 LRI, 2067 RLI, 2068 FSI, 2069 PDI, FE0F VS16, FEFF BOM";
const span = (ends) => ends.split("-").map((code) => `\\u{${code}}`).join("-");
const HIDDEN = new RegExp(`[${CODES.split(" ").map(span).join("")}]`, "gu");
const MARKS = new Map(SIGNS.split(", ").map((pair) => pair.split(" ")).map(([code, name]) => [parseInt(code, 16), name]));

function named(char) {
  const code = char.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  return `⟨${MARKS.get(code) ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`}⟩`;
}

/** Text as nodes: what would act on the page or hide in it is shown as a symbol instead. */
export function visible(text) {
  const out = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) out.push(text.slice(from, match.index));
    const code = match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    out.push(h("span", { class: "ctl", title: `U+${code}` }, named(match[0])));
    from = match.index + match[0].length;
  }
  out.push(text.slice(from));
  return out;
}

/** What somebody else wrote, in one line or many, kept apart from the writing direction of what is around it. */
export function said(text, props = {}) {
  return h("bdi", { dir: "auto", ...props, class: `said ${props.class ?? ""}` }, visible(text));
}

/** The same as plain text, for labels and titles. */
export function plain(text) {
  return text.replace(HIDDEN, named);
}

export function button(label, run, props = {}) {
  return h("button", { type: "button", ...props, on: { click: run } }, label);
}

/** A line that says what is missing or went wrong, and what to do. */
export function notice(title, remedy = "", kind = "empty", ...more) {
  const role = kind === "error" ? "alert" : "status";
  return h("div", { class: `notice ${kind}`, role }, h("strong", {}, plain(title)), remedy && h("p", {}, plain(remedy)), more);
}

export function failure(error) {
  return notice(error.message || String(error), error.remedy || "", "error");
}

export function loading(what = "Loading") {
  return h("div", { class: "notice loading", role: "status" }, `${what} …`);
}

/** Say something in passing. */
export function toast(text) {
  const el = document.getElementById("toast");
  put(el, plain(text));
  el.classList.add("on");
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => el.classList.remove("on"), 3500);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser does not let this page copy; select the line instead");
  }
}

/** Run once things have been quiet for so many milliseconds. */
export function later(ms, run) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...args), ms);
  };
}
