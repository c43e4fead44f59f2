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

/** Replace what an element holds. */
export function put(el, ...children) {
  el.replaceChildren(...flat(children));
  return el;
}

const MARKS = {
  0x061c: "ALM", 0x200b: "ZWSP", 0x200e: "LRM", 0x200f: "RLM", 0x2028: "LS", 0x2029: "PS", 0x202a: "LRE",
  0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO", 0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI",
  0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM", 0xfff9: "IAA", 0xfffa: "IAS", 0xfffb: "IAT",
};
// Control characters, marks of direction, invisible ones, tag characters and lone halves of surrogate pairs.
const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060\\u2066-\\u2069" +
    "\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}\\ud800-\\udfff]", "gu");

function named(char) {
  const code = char.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  return MARKS[code] ? `⟨${MARKS[code]}⟩` : `⟨${code.toString(16).toUpperCase()}⟩`;
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
