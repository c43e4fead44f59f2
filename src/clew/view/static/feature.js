// Features of two checkpoints: the comparisons of a store, and a page for one feature with its contexts and its effect.

import { get, name } from "./api.js";
import { h, loading, notice, plain, put, said, svg } from "./dom.js";
import { number, plural, share, signed, whole } from "./format.js";
import { interval } from "./interval.js";
import { runLink } from "./runrow.js";

const STAGES = { rate: "nothing written", selection: "selection prompts", test: "test prompts", control: "control" };
const [WIDTH, HEIGHT] = [360, 60]; // pixels of the histogram

export const featureRoute = (label, latent) => `#/feature/${name(label)}/${name(latent)}`;

/** The page of a feature by the name of its token values, where they are a feature's; else null. */
export function featureOf(method) {
  const [, label, latent] = method?.match(/^diff-([0-9a-f]{8})-f(\d{1,7})$/) ?? [];
  return label ? featureRoute(label, latent) : null;
}

export async function featuresView(root, where) {
  put(root, loading("Reading features"));
  const all = where.parts[0] ? [await get(`features/${name(where.parts[0])}`)] : await get("features");
  const head = h("header", { class: "runhead" }, h("div", { class: "title" }, h("h1", {}, "Features"), h("span", { class: "prompt" }, plural(all.length, "comparison"))));
  if (!all.length) put(root, head, notice("No features", "`clew audit diff TRAINED BASE --on QUERY` compares two checkpoints and files them."));
  else put(root, head, h("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "Comparisons" }, h("div", { class: "feature" }, all.map(comparison))));
  return { keys: {} };
}

function comparison({ label, a, b, layer, features, asked }) {
  const heads = ["Feature", "Whose", "Decoder-norm share", "Fitted share", "Active tokens", "Tried", "Label"];
  const row = (it) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: featureRoute(label, it.latent) }, `feature ${it.latent}`)), h("td", {}, whose(it, a, b)),
    h("td", { class: "num" }, number(it.share, 2)), h("td", { class: "num" }, number(it.fitted, 2)), h("td", { class: "num" }, share(it.often)),
    h("td", {}, it.parts.length ? `best of ${it.parts.join(" and ")}` : it.tried ? "yes" : ""), h("td", { class: "text" }, said(it.said)));
  return h("section", { "aria-label": `Comparison ${plain(label)}` }, h("h2", {}, said(a), " against ", said(b), h("span", { class: "dim" }, ` layer ${layer}, comparison ${plain(label)}`)),
    asked.map((one) => h("p", { class: "verdict" }, h("b", {}, plain(one.kind)), ": ", said(one.text), h("span", { class: "dim" }, " (", said(one.behaviour), ")"))),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Features of ${plain(label)}` }, h("table", { class: "grid listed" }, h("thead", {}, h("tr", {}, heads.map((one, i) => h("th", { class: i > 1 && i < 5 ? "num" : "" }, one)))), h("tbody", {}, features.map(row)))),
    h("p", { class: "hint" }, h("a", { href: `#/reports?q=${name(label)}` }, "Reports of this comparison")));
}

const whose = (it, a, b) => (it.whose === "both" ? "both models" : [said(it.whose === "A" ? a : b), " alone"]);

export async function featureView(root, where) {
  put(root, loading("Reading the feature"));
  const [label = "", latent = ""] = where.parts;
  return new Feature(root, await get(`feature/${name(label)}/${name(latent)}`)).draw();
}

class Feature {
  constructor(root, data) {
    Object.assign(this, { root, data, index: -1 });
    this.keys = {
      j: ["Next context", () => this.move(1)],
      k: ["Previous context", () => this.move(-1)],
      enter: ["Open it in its transcript", () => this.open()],
    };
  }

  draw() {
    const { label, latent, a, b, layer, said: words } = this.data;
    const head = h("header", { class: "runhead" }, h("div", { class: "title" }, h("h1", {}, `Feature ${latent}`), h("span", { class: "tag" }, whose(this.data, a, b)),
      h("span", { class: "prompt" }, said(a), " against ", said(b), `, layer ${layer}`, words && [": ", said(words)]), h("a", { class: "button", href: `#/features/${name(label)}` }, "All features")));
    this.list = contexts(this.data);
    put(this.root, head, h("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": `Feature ${latent}` }, h("div", { class: "feature" },
      figures(this.data), h("section", {}, h("h2", {}, "Where it is most active"), this.list), strength(this.data), effects(this.data), others(this.data))));
    return this;
  }

  move(by) {
    const items = [...this.list.querySelectorAll("li")];
    if (!items.length) return;
    items[this.index]?.removeAttribute("aria-current");
    this.index = Math.max(0, Math.min(items.length - 1, this.index + by));
    items[this.index].setAttribute("aria-current", "true");
    items[this.index].scrollIntoView({ block: "nearest" });
  }

  open() {
    const link = this.list.querySelector("li[aria-current] a");
    if (link) location.hash = link.getAttribute("href");
  }
}

function figures({ share: norm, fitted, often, active, tokens, high, top, calls, report, said: words, labeller, a }) {
  const line = (label, value, ...more) => h("div", {}, h("dt", {}, label), h("dd", {}, h("b", {}, value), more.length ? h("span", { class: "dim" }, " ", more) : null));
  return h("section", {}, h("h2", {}, "What it is"), h("dl", {},
    words ? line("Label", said(words), "said by ", labeller ? runLink(labeller) : "a model", " of the contexts below") : null,
    line("Decoder-norm share", number(norm, 2), "of ", said(a), ": how much of it is written in that model, by the weights"),
    line("Fitted share", number(fitted, 2), "of ", said(a), ": how much it moves that model's states, by the data"),
    line("Active", share(often), `of the tokens: ${whole(active)} of ${whole(tokens)}`),
    line("In a run", share(report.estimate), `[${share(report.low)}, ${share(report.high)}] of its tokens, ${plural(report.n, "run")}, ${Math.round(100 * report.level)} % interval`),
    line("Activation", number(high, 2), `the 95th percentile where it is active; at most ${number(top, 2)}`),
    line("Values", plural(calls, "model call"), "have one for each token of the reply that was read")));
}

function contexts({ name: method, places }) {
  const top = Math.max(...places.map((one) => one.value), 1e-9);
  const one = ({ run, seq, token, value, before, at, after, note }) => {
    const place = `@${seq}${token === null ? "" : `+${token}`}`;
    const strong = h("span", { class: "hit", style: { "--much": `${Math.round(15 + 45 * (value / top))}%` } }, at ? said(at) : "∎");
    return h("li", {}, h("span", { class: "at" }, h("a", { class: "id", href: `#/run/${name(run)}${place}?shade=${name(method)}` }, plain(run) + place), h("span", { class: "dim" }, token === null ? "prompt" : "reply"), h("span", { class: "num" }, number(value, 2))),
      note ? h("span", { class: "dim" }, said(note)) : h("span", { class: "text" }, h("span", { class: "dim" }, said(before)), h("mark", {}, strong), h("span", { class: "dim" }, said(after))));
  };
  return places.length ? h("ol", { class: "contexts" }, places.map(one)) : h("p", { class: "hint" }, "None is kept.");
}

function strength({ counts, top, active }) {
  const most = Math.max(...counts, 0);
  if (!most) return null;
  const el = svg("svg", { width: "100%", height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `Activation at ${plural(active, "token")} where it is active, from 0 to ${number(top, 2)}` });
  const width = WIDTH / counts.length;
  counts.forEach((count, i) => {
    const height = count ? Math.max(1, (count / most) * (HEIGHT - 2)) : 0;
    el.append(svg("rect", { x: i * width + 1, width: width - 2, y: HEIGHT - height, height }, svg("title", {}, `${number((i / counts.length) * top, 2)} to ${number(((i + 1) / counts.length) * top, 2)}: ${plural(count, "token")}`)));
  });
  return h("section", {}, h("h2", {}, "How strongly"), h("figure", { class: "strength" }, el, h("figcaption", {}, h("span", {}, "0"), h("span", {}, "activation, where it is active"), h("span", {}, number(top, 2)))));
}

function effects({ asked, latent }) {
  const none = h("p", { class: "hint" }, "It was not written while the model answered. ", h("code", {}, "clew audit diff … --does REGEX"), " or ", h("code", {}, "--reward"), " tries the best features.");
  return h("section", {}, h("h2", {}, "What writing it does"), asked.length ? asked.map((one) => question(one, latent)) : none);
}

function question({ behaviour, kind, text, part, arms }, latent) {
  const heads = ["Prompts", "Arm", "Effect", "95 % interval", "Prompts or directions", "p"];
  const isRate = (arm) => arm.about.startsWith("rate of ");
  const reach = Math.max(0.1, ...arms.filter((arm) => !isRate(arm)).flatMap((arm) => [Math.abs(arm.low), Math.abs(arm.high)])); // one axis for all
  const plus = (value, rate) => (rate ? number(value, 2) : signed(value || 0)); // never a negative zero
  const row = (arm) => h("tr", { title: plain(arm.design) }, h("td", {}, STAGES[arm.stage] ?? plain(arm.stage)), h("th", { scope: "row" }, said(arm.about.replace(/^selection: /, ""))),
    h("td", { class: "num" }, plus(arm.estimate, isRate(arm))), h("td", {}, interval(arm.estimate, arm.low, arm.high, "", isRate(arm) ? null : reach), h("span", { class: "num" }, ` [${plus(arm.low, isRate(arm))}, ${plus(arm.high, isRate(arm))}]`)),
    h("td", { class: "num" }, whole(arm.n)), h("td", { class: "num" }, arm.p === null ? "" : arm.p < 0.001 ? "< 0.001" : arm.p.toPrecision(2)));
  const best = part ? `It did best of the features that ${part === "exclusive" ? "one model alone has" : "both models have"}, and was judged on other prompts.` : "It was tried on the selection prompts alone: another feature did more there.";
  return h("div", { class: "asked" }, h("h3", {}, "Behaviour: ", said(behaviour)), h("p", { class: "verdict" }, h("b", {}, plain(kind)), ": ", said(text)), h("p", { class: "hint" }, best),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Arms of feature ${latent}, ${plain(behaviour)}` }, h("table", { class: "grid arms" }, h("thead", {}, h("tr", {}, heads.map((one, i) => h("th", { class: [2, 4, 5].includes(i) ? "num" : "" }, one)))), h("tbody", {}, arms.map(row)))),
    h("p", { class: "hint" }, "An effect is the change of the rate against nothing written, at the same prompts and seeds; one that was looked for is positive. p is McNemar's, one-sided and not corrected."));
}

function others({ label, others: rest }) {
  if (!rest.length) return null;
  return h("section", {}, h("h2", {}, "Others of this comparison"), h("p", { class: "links" }, rest.map((latent) => [h("a", { href: featureRoute(label, latent) }, `feature ${latent}`), " "])));
}
