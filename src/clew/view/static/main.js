// The shell: which view an address means, keys, theme, and the line that shows what is being made now.

import { connect, get, listen } from "./api.js";
import { button, failure, h, plain, put, said } from "./dom.js";
import { plural, share, whole } from "./format.js";
import { help, onKey } from "./keys.js";
import { compareView } from "./compare.js";
import { diffView } from "./diff.js";
import { earlyView } from "./early.js";
import { featureView, featuresView } from "./feature.js";
import { filesView } from "./files.js";
import { groupView } from "./group.js";
import { reportsView } from "./reports.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { trainingView } from "./training.js";
import { showWaiting } from "./waiting.js";

const VIEWS = { runs: runsView, run: runView, compare: compareView, diff: diffView, files: filesView, group: groupView, training: trainingView, reports: reportsView, features: featuresView, feature: featureView, early: earlyView };
const TITLES = { runs: "Runs", run: "Run", compare: "Compare", diff: "Diff", files: "Files", group: "Group", training: "Training", reports: "Reports", features: "Features", feature: "Feature", early: "Commitment curve" };
let main = document.getElementById("main");
let current = null;

/** An address as {view, parts, query}: #/run/ID@7+2 gives view run, parts ["ID@7+2"]. */
function address() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...parts] = path.split("/").map(decode);
  return { view: view || "runs", parts, query: new URLSearchParams(search) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function route() {
  const where = address();
  const make = VIEWS[where.view];
  mark(where);
  if (current?.stay?.(where)) return;
  current?.close?.();
  current = null;
  // An element of its own for each view: one that is still loading when the next is asked for writes over nothing.
  const root = main.cloneNode(false);
  main.replaceWith(root);
  main = root;
  root.className = `view-${where.view}`;
  try {
    if (!make) throw Object.assign(new Error(`there is no view ${where.view}`), { remedy: "Choose one above." });
    const view = await make(root, where, store);
    if (root !== main) view.close?.();
    else current = view;
  } catch (error) {
    if (root === main) put(root, failure(error), error.status === 401 && tokenField());
  }
}

function mark(where) {
  const about = where.parts[0] ? ` ${where.parts.join(" ")}` : "";
  document.title = `${TITLES[where.view] ?? ""}${plain(about)} · clew`;
  const home = { run: "runs", diff: "runs", files: "runs", group: "runs", features: "reports", feature: "reports", early: "reports" }[where.view] ?? where.view;
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.getAttribute("href") === `#/${home}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Where the server asks for a token: a field for it; the server keeps it in a cookie. */
function tokenField() {
  const field = h("input", { type: "password", name: "token", "aria-label": "Token", autocomplete: "off", required: true });
  return h("form", { class: "token", method: "get", action: "/" }, field, h("button", { type: "submit" }, "Enter"));
}

const store = { can_fork: false, readonly: false, path: "" };
const now = { live: {}, training: {}, away: false };

async function readStore() {
  Object.assign(store, await get("store"));
  const name = store.path.split("/").slice(-2).join("/");
  const el = document.getElementById("store");
  put(el, said(name, { title: plain(store.path) }), store.can_fork ? null : h("span", { class: "tag" }, "read only"));
}

function showLive() {
  const { runs = 0, success = null, tokens_per_second: rate = 0, ended = 0 } = now.live;
  const parts = [];
  if (now.away) parts.push(h("span", { class: "warn" }, "no connection, trying again"));
  if (runs) parts.push(h("span", { class: "beat" }, `${whole(runs)} running`));
  if (success !== null && (runs || rate)) parts.push(h("span", { title: `${plural(ended, "run")} ended` }, `success ${share(success, 0)}`));
  if (rate) parts.push(h("span", {}, `${whole(rate)} tok/s`));
  for (const { name, step } of Object.values(now.training))
    parts.push(h("a", { href: `#/training/${encodeURIComponent(name)}` }, plain(name), ` step ${step}`));
  put(document.getElementById("live"), parts);
}

function theme() {
  const names = ["auto", "light", "dark"];
  const kept = () => (names.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto");
  const el = document.getElementById("theme");
  const show = () => {
    document.documentElement.dataset.theme = kept();
    put(el, { auto: "◐", light: "○", dark: "●" }[kept()]);
    el.setAttribute("aria-label", `Theme: ${kept()}`);
    el.title = `Theme: ${kept()}`;
  };
  el.addEventListener("click", () => {
    localStorage.setItem("theme", names[(names.indexOf(kept()) + 1) % 3]);
    show();
  });
  show();
}

theme();
showWaiting(document.getElementById("wait"));
document.getElementById("help").addEventListener("click", () => help(current));
document.addEventListener("keydown", (event) => onKey(event, () => current));
addEventListener("hashchange", route);
listen("live", (data) => showLive(Object.assign(now.live, data)));
listen("training", (data) => {
  now.training[data.name] = data;
  showLive();
});
for (const way of ["up", "down"])
  listen(way, () => {
    now.away = way === "down";
    showLive();
  });
try {
  store.known = readStore(); // meanwhile the view asks for what it shows
  store.known.catch(() => {});
  const shown = route();
  await store.known;
  connect();
  await shown;
} catch (error) {
  put(main, failure(error), error.status === 401 ? tokenField() : button("Try again", () => location.reload()));
}
