// Shading: tokens and Calls coloured by a chosen value, from orange (low) to blue (high), with a legend in numbers.

import { h, plain, visible } from "./dom.js";
import { number, signed } from "./format.js";

const KEPT = 1500; // tokens drawn at once
const FEATURE = /^diff-[0-9a-f]{8}-f\d{1,7}$/; // activations: from 0 up

/** Round up to 1, 2 or 5 times a power of ten, so that the scale stays while more is read. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((bound) => bound >= value * 0.999);
}

/**
 * A scale of a value. Surprise has one side: white where a token was sure, orange where it was not. What methods say
 * has two sides around 0, or around the middle where nothing lies below 0; a feature that is not active is white.
 */
export class Shade {
  constructor(name, method = null, called = name) {
    Object.assign(this, { name, called });
    this.oneSided = name === "logprob" || name === "entropy";
    const reach = method ? Math.max(Math.abs(method.low ?? 0), Math.abs(method.high ?? 0)) : 0;
    this.rising = FEATURE.test(name);
    this.signed = !method || this.rising || (method.low ?? 0) < 0;
    this.bound = name === "logprob" ? 4 : name === "entropy" ? 2 : nice(reach || 1);
  }

  /** Where a value lies, -1 (orange) to 1 (blue); null where there is none. */
  place(value) {
    if (value === null || value === undefined) return null;
    if (this.oneSided) return -Math.min(1, Math.abs(value) / this.bound);
    const centred = this.signed ? value / this.bound : (2 * value) / this.bound - 1;
    return Math.max(-1, Math.min(1, centred));
  }

  paint(el, value) {
    const place = this.place(value);
    if (place === null) return el;
    el.style.setProperty("background-color", colour(place));
    return el;
  }

  /** The legend: a bar with its numbers, and what underlining means. */
  legend() {
    const ends = this.oneSided
      ? [[`${this.name === "logprob" ? "−" : ""}${this.bound}`, -1], ["0", 0]]
      : this.rising ? [["0", 0], [number(this.bound), 1]]
      : this.signed ? [[`−${number(this.bound)}`, -1], ["0", 0], [`+${number(this.bound)}`, 1]]
        : [["0", -1], [number(this.bound / 2), 0], [number(this.bound), 1]];
    const steps = this.oneSided ? [-1, -0.75, -0.5, -0.25, 0] : this.rising ? [0, 0.25, 0.5, 0.75, 1] : [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1];
    const bar = h("span", { class: "ramp" }, steps.map((step) => h("i", { style: { "background-color": colour(step) } })));
    const unit = { logprob: "nats", entropy: "nats" }[this.name] ?? "";
    return h(
      "span",
      { class: "legend", "aria-label": `Legend of ${plain(this.called)}` },
      h("span", { class: "end" }, ends[0][0]), bar, h("span", { class: "end" }, ends.at(-1)[0], unit && ` ${unit}`),
      h("span", { class: "tok forced sample" }, "forced"),
    );
  }

  /** The value of a whole Call, and how it is said: sums of logprobs, means of entropies, a method's value. */
  ofCall(call) {
    if (this.name === "logprob") return sum(call.values?.logprob);
    if (this.name === "entropy") return mean(call.values?.entropy);
    return call.marks?.[this.name] ?? mean(call.token_marks?.[this.name]);
  }

  show(value) {
    return this.oneSided || this.rising ? number(value, 2) : this.signed ? signed(value) : number(value, 2);
  }
}

const present = (values) => (values ?? []).filter((value) => value !== null);
const sum = (values) => (present(values).length ? present(values).reduce((a, b) => a + b, 0) : null);
const mean = (values) => (present(values).length ? sum(values) / present(values).length : null);

export function colour(place) {
  const much = Math.round(Math.abs(place) ** 0.8 * 62);
  return much ? `color-mix(in oklab, var(--${place < 0 ? "low" : "high"}) ${much}%, transparent)` : "transparent";
}

/**
 * What is known of each token of a reply after its head: {text, id, kind, offset, value(name)}. ``offset`` is the one a
 * cursor counts; a token's value comes from the sampled ones, from a method's row, or from its whole Call.
 */
export function tokensOf(call) {
  const all = call.reply?.tokens ?? [];
  const head = all.findIndex(([, , kind]) => kind !== "h");
  if (head < 0) return [];
  let sampled = -1;
  return all.slice(head).map(([text, id, kind], offset) => {
    if (kind === "s") sampled += 1;
    const nth = sampled;
    const value = (name) => {
      if (name === "logprob" || name === "entropy") return kind === "s" ? call.values?.[name]?.[nth] ?? null : null;
      const row = call.token_marks?.[name];
      if (row) return row[head + offset] ?? null;
      return kind === "s" ? call.marks?.[name] ?? null : null;
    };
    return { text, id, kind, offset, value };
  });
}

/** A reply as its tokens. Each is reached by its place: data-token on the element. */
export function drawTokens(call, shade, chosen = -1) {
  const tokens = tokensOf(call);
  const box = h("bdi", { class: "said tokens", dir: "auto" });
  const draw = (from, to) => box.append(...tokens.slice(from, to).map((token) => drawToken(token, shade, chosen)));
  draw(0, KEPT);
  if (tokens.length > KEPT) {
    const more = h("button", { type: "button", class: "more", on: { click: () => (more.remove(), draw(KEPT)) } }, `Show ${tokens.length - KEPT} more tokens`);
    box.append(more);
  }
  return box;
}

function drawToken(token, shade, chosen) {
  const value = shade ? token.value(shade.name) : null;
  const kind = token.kind === "f" ? "forced" : "sampled";
  const told = [`+${token.offset}`, `id ${token.id}`, kind, value !== null && `${shade.name} ${shade.show(value)}`].filter(Boolean);
  const el = h("span", { class: `tok ${kind} ${token.offset === chosen ? "chosen" : ""}`, title: plain(told.join("  ")), data: { token: token.offset } }, shown(token));
  return shade ? shade.paint(el, value) : el;
}

/** A token's text, where line ends and nothing at all are to be seen; its number where no one here can spell it. */
function shown({ text, id }) {
  if (text === null) return h("span", { class: "end" }, `${id} `);
  if (text === "") return h("span", { class: "end" }, "∎");
  if (!text.includes("\n")) return visible(text);
  return text.split("\n").flatMap((part, i) => (i ? [h("span", { class: "ctl" }, "↵"), "\n", ...visible(part)] : visible(part)));
}
