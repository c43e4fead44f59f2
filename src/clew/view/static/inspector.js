// What produced a Call: who answered, how it was asked, when, at what cost, and everything methods say of it.

import { button, copy, h, plain, put, said } from "./dom.js";
import { counted, money, moment, number, plural, seconds, signed, whole } from "./format.js";
import { Shade, tokensOf } from "./tokens.js";

/** A list of names and values; absent values are left out. */
function table(rows, title = "") {
  const kept = rows.filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (!kept.length) return null;
  const body = kept.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)));
  return h("section", {}, title && h("h3", {}, title), h("dl", {}, body));
}

/** The run as a whole, where no Call is selected. */
export function drawRun(root, facts) {
  const { row, summary: s, conversations, methods } = facts;
  const verdicts = Object.entries(facts.rewards ?? {});
  put(
    root,
    h("h2", {}, "Run"),
    h("p", { class: "hint" }, "Choose a Call with ", h("kbd", {}, "j"), " ", h("kbd", {}, "k"), " or the pointer to see what produced it."),
    table([
      ["Calls", whole(facts.calls)], ["of them shared", facts.shared ? whole(facts.shared) : null],
      ["Conversations", conversations.length > 1 ? whole(conversations.length) : null], ["Origin", s.origin],
      ["Made", moment(s.created)], ["Agent", said(row.agent, { class: "mono" })], ["Arguments", row.config !== "{}" ? said(row.config, { class: "mono" }) : null],
      ["World", said(s.world, { class: "mono" })], ["Model", said(s.model, { class: "mono" })], ["Seed", String(s.seed)],
    ]),
    verdicts.length > 1 && table(verdicts.map(([version, value]) => [`version ${version}`, number(value)]), "Rewards"),
    methodTable(methods),
  );
}

function methodTable(methods) {
  if (!methods.length) return null;
  const head = h("tr", {}, ["Method", "on", "n", "low", "high"].map((label, i) => h("th", { class: i > 1 ? "num" : "" }, label)));
  const rows = methods.map((m) => h("tr", {}, h("td", {}, said(m.method)), h("td", {}, m.target), h("td", { class: "num" }, whole(m.n)),
    h("td", { class: "num" }, number(m.low)), h("td", { class: "num" }, number(m.high))));
  return h("section", {}, h("h3", {}, "What methods say of this run"), h("table", { class: "grid" }, h("thead", {}, head), h("tbody", {}, rows)));
}

/** A Call, and the token of it that is selected. */
export function drawInspector(root, view, call, detail) {
  const { setup } = detail;
  const token = view.token === null ? null : tokensOf(call)[view.token];
  put(
    root,
    h("h2", {}, `${title(call.kind)} `, h("span", { class: "id" }, `@${call.seq}${view.token === null ? "" : `+${view.token}`}`),
      button("Copy place", () => copy(view.placeText()), { class: "quiet" })),
    call.error && h("p", { class: "notice error" }, said(call.error)),
    token && drawToken(token, view.facts.methods, call),
    values(detail.annotations, view.facts.methods),
    setup && table([
      ["Model", said(setup.model, { class: "mono" })], ["Weights version", String(setup.version)],
      ["Served by", setup.served_by && setup.served_by !== setup.model ? said(setup.served_by, { class: "mono" }) : null],
      ["Tools", setup.tools?.length ? said(setup.tools.join(", "), { class: "mono" }) : null], ["Seed", h("span", { class: "mono" }, String(detail.seed))],
    ], "Who answered"),
    setup && sampling(setup),
    call.kind === "ask" && table([
      ["Prompt tokens", counted(detail.usage?.prompt)], ["from cache", counted(detail.usage?.cached)], ["Sampled", counted(detail.usage?.completion)],
      ["Forced", call.forced ? whole(call.forced) : null], ["Finish", plain(call.finish || "")],
    ], "Tokens"),
    table([
      ["Started", detail.started ? moment(detail.started) : null], ["Took", detail.started || detail.seconds ? seconds(detail.seconds) : null],
      ["Cost", detail.cost ? money(detail.cost) : null], ["Clock", `issued ${call.issue ?? detail.after}, handed over ${detail.done < 0 ? "not yet" : detail.done}`],
    ], "Time and cost"),
    lines("Who was asked", [...(detail.decided ?? []), ...(detail.asked ?? [])]),
    attempts(detail.attempts),
    drift(detail.drift),
    call.kind !== "ask" && table([["Reward", call.reward === null ? null : number(call.reward)], ["State", call.state ? h("span", { class: "mono" }, call.state) : null],
      ["Snapshot", detail.snapshot ? "kept" : null], ["Legal", call.legal?.length ? said(call.legal.join("\n"), { class: "mono" }) : null]], "World"),
    samples(detail.samples),
    table([["Issued by", call.run === view.run ? null : h("a", { class: "id", href: `#/run/${call.run}@${call.seq}` }, plain(call.run))],
      ["Key", hex(detail.key)], ["Request", hex(detail.request)], ["Node in", hex(detail.node_in)], ["Node out", hex(detail.node_out)]], "Record"),
  );
}

const TITLES = { open: "World opened", ask: "Reply", act: "Act", spawn: "Child run", note: "Note", draw: "Draw", now: "Clock", end: "End" };
const title = (kind) => TITLES[kind] ?? kind;
const hex = (key) => (key ? h("span", { class: "mono key", title: key }, key) : null);

function drawToken(token, methods, call) {
  const logprob = token.value("logprob");
  const rows = [["Text", token.text === null ? null : said(JSON.stringify(token.text), { class: "mono" })], ["Id", h("span", { class: "mono" }, String(token.id))],
    ["How", token.kind === "f" ? h("span", { class: "tok forced" }, "forced") : "sampled"]];
  if (logprob !== null) rows.push(["Logprob", `${number(logprob, 4)} nats`], ["Probability", `${(100 * Math.exp(logprob)).toPrecision(3)} %`]);
  const entropy = token.value("entropy");
  if (entropy !== null) rows.push(["Entropy", `${number(entropy, 4)} nats`]);
  for (const name of Object.keys(call.token_marks ?? {})) rows.push([said(name), bar(token.value(name), methods.find((m) => m.method === name), name)]);
  return table(rows, `Token ${token.offset}`);
}

/** Every annotation on the Call, one line a method: absent is left out, never 0. */
function values(annotations, methods) {
  if (!annotations?.length) return null;
  const row = (a) => {
    const about = [`version ${a.version}`, a.params && `params ${a.params}`, a.scope && `computed in ${a.scope}`].filter(Boolean).join("\n");
    const value = a.value === null ? h("span", { class: "dim" }, a.n ? plural(a.n, "token") : said(typeof a.data === "string" ? a.data : JSON.stringify(a.data ?? ""))) : bar(a.value, methods.find((m) => m.method === a.method), a.method);
    return h("tr", { title: plain(about) }, h("td", {}, said(a.method)), h("td", { class: "dim" }, a.target === "call" ? "" : a.target), h("td", { class: "num" }, value));
  };
  return h("section", {}, h("h3", {}, "What methods say"), h("table", { class: "grid values" }, h("tbody", {}, annotations.map(row))));
}

/** A value with a bar to either side of 0, on the scale of its method in this run. */
function bar(value, method, name) {
  if (value === null || value === undefined) return h("span", { class: "dim" }, "absent");
  const shade = new Shade(name, method);
  const place = shade.signed ? shade.place(value) : (shade.place(value) + 1) / 2;
  const inner = h("i", { class: place < 0 ? "low" : "high", style: { width: `${Math.abs(place) * 50}%`, [place < 0 ? "right" : "left"]: "50%" } });
  return h("span", { class: "barval" }, h("span", { class: "bar", "aria-hidden": "true" }, inner), h("span", { class: "num" }, signed(value, 3)));
}

/** Sampling as asked, and where the model did otherwise, in force. */
function sampling({ asked, in_force: force }) {
  if (!asked) return null;
  const names = [...new Set([...Object.keys(asked), ...Object.keys(force ?? {})])];
  const show = (value) => (Array.isArray(value) ? (value.length ? said(JSON.stringify(value)) : "none") : value === undefined ? "–" : String(value));
  const differs = (one) => force && JSON.stringify(force[one]) !== JSON.stringify(asked[one]);
  const rows = names.map((one) => h("tr", { class: differs(one) ? "differs" : "" }, h("td", {}, one.replaceAll("_", " ")), h("td", { class: "num" }, show(asked[one])), h("td", { class: "num" }, show(force?.[one]))));
  const head = h("tr", {}, h("th", {}, "Sampling"), h("th", { class: "num" }, "asked"), h("th", { class: "num" }, "in force"));
  return h("section", {}, h("table", { class: "grid" }, h("thead", {}, head), h("tbody", {}, rows)));
}

function attempts(all) {
  if (!all?.length) return null;
  const rows = all.map((a, i) => h("tr", {}, h("td", {}, String(i + 1)), h("td", { class: "num" }, seconds(a.seconds)), h("td", { class: "num" }, a.status ? String(a.status) : ""), h("td", {}, said(a.error || "answered"))));
  return h("section", {}, h("h3", {}, plural(all.length, "attempt")), h("table", { class: "grid" }, h("tbody", {}, rows)));
}

function lines(head, all) {
  if (!all.length) return null;
  return h("section", {}, h("h3", {}, head), all.map((one) => said(one, { class: "block" })));
}

function drift(all) {
  if (!all?.length) return null;
  return h("section", {}, h("h3", {}, "Drift"), all.map((one) => said(typeof one === "string" ? one : JSON.stringify(one), { class: "mono block" })));
}

function samples(all) {
  if (!all?.length) return null;
  return h("section", {}, h("h3", {}, "Other samples of this request"), all.map((one) => h("div", { class: "block" }, said(one.text, { class: "mono" }), h("span", { class: "dim" }, ` ${plain(one.finish)}`))));
}
