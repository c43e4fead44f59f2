// The family of a run: every fork with the place where it parted and what was changed there. Many forks are folded.

import { button, h, plain, put, said } from "./dom.js";
import { number, plural, whole } from "./format.js";
import { dot } from "./runrow.js";

const SHOWN = 400; // lines drawn at once
const FIRST = 10; // forks of one place, and places of one run, that are shown before the others are asked for
const unfolded = new Set(); // what was asked for: stays so while the page is open

/** Direct forks of a run by the Call they were forked at. `tree` is a list; `up` of a run is the place of its parent. */
export function forksAt(tree, run) {
  return Map.groupBy(tree.filter((node) => tree[node.up]?.run === run), (node) => node.seq);
}

/**
 * The tree as lines to draw: {node, depth} of a run, {forks, key, depth} above the many forks of one place, {hidden, key,
 * depth} of forks that are folded. Runs of which `keep` is true are never folded.
 */
function outline(tree, keep) {
  const children = Map.groupBy(tree, (node) => node.up);
  const under = ({ node, forks, key, depth }) => {
    if (forks) return fold(forks.map((fork) => [fork]), key, depth + 1, keep);
    if (!node) return [];
    const places = Map.groupBy(children.get(tree.indexOf(node)) ?? [], (fork) => `${node.run}${at(fork)}`);
    return fold([...places.values()], node.run, depth + 1, keep);
  };
  const out = [];
  const todo = [{ node: tree[0], depth: 0 }]; // no recursion: a line of forks may be long
  while (todo.length) {
    const line = todo.pop();
    out.push(line);
    todo.push(...under(line).reverse());
  }
  return out;
}

/** The first of some sets of forks and those that are kept; the others as one line, unless they were asked for. */
function fold(sets, key, depth, keep) {
  const shown = (forks, i) => i < FIRST || unfolded.has(key) || forks.some((fork) => keep.has(fork.run));
  const one = (forks) => (forks.length > FIRST ? [{ forks, key: `${key}${at(forks[0])}`, depth }] : forks.map((node) => ({ node, depth })));
  const hidden = sets.filter((forks, i) => !shown(forks, i)).flat();
  return [...sets.filter(shown).flatMap(one), ...(hidden.length ? [{ hidden, key, depth }] : [])];
}

/** A run and the runs it was forked from. */
function ancestors(tree, run) {
  const found = new Set();
  for (let node = tree.find((one) => one.run === run); node; node = tree[node.up]) found.add(node.run);
  return found;
}

/** Draw it into `root`; `compare(run)` opens a diff of the run at hand with another. */
export function drawTree(root, tree, run, compare) {
  const family = tree.length;
  const keep = ancestors(tree, run);
  const list = h("ol", { class: "tree" });
  let from = null;
  let to = 0;
  const draw = () => {
    const all = outline(tree, keep);
    if (from === null) {
      from = Math.max(0, Math.min(all.findIndex((line) => line.node?.run === run) - 20, all.length - SHOWN));
      to = from + SHOWN;
    }
    put(
      list,
      from > 0 && more(`Show ${from} above`, () => (from = Math.max(0, from - SHOWN))),
      all.slice(from, to).map((line) => (line.node ? branch(line, run, compare) : line.forks ? place(line) : rest(line))),
      to < all.length && more(`Show ${all.length - to} below`, () => (to += SHOWN)),
    );
  };
  const more = (label, grow, depth = 0) => h("li", { style: { "--depth": Math.min(depth, 8) } }, button(label, () => (grow(), draw()), { class: "more" }));
  const rest = ({ hidden, key, depth }) => more(`Show the other ${plural(hidden.length, "fork")}`, () => unfolded.add(key), depth);
  draw();
  put(root, h("h2", {}, "Forks", h("span", { class: "dim" }, family > 1 ? ` ${whole(family)} runs in the family` : "")), list,
    family === 1 && h("p", { class: "hint" }, "Nothing was forked from this run yet. Choose a step or a token and press ", h("kbd", {}, "f"), "."));
  const here = root.querySelector(".here");
  if (here && here.offsetTop > root.clientHeight) root.scrollTop = here.offsetTop - 80;
}

/** Where something was forked, as it stands behind a run. */
const at = ({ seq, token }) => `@${seq}${token ? `+${token}` : ""}`;

/** The line above the many forks of one place: how many, how many different changes, and their mean return. */
function place({ forks, depth }) {
  const returns = forks.map((fork) => fork.reward).filter((reward) => reward !== null && reward !== undefined);
  const changes = new Set(forks.map((fork) => fork.edits.join(", "))).size;
  return h("li", { class: "place", style: { "--depth": Math.min(depth, 8) }, "aria-level": depth + 1 },
    h("span", { class: "at" }, at(forks[0])), h("span", {}, plural(forks.length, "fork"), changes > 1 && `, ${changes} changes`),
    returns.length > 0 && h("span", { class: "num", title: `mean return of ${returns.length}` }, "mean ", number(returns.reduce((a, b) => a + b, 0) / returns.length)));
}

function branch({ node, depth }, run, compare) {
  const here = node.run === run;
  const from = node.parent ? h("span", { class: "at", title: plain(`forked at ${node.parent}`) }, at(node)) : null;
  const edits = node.parent ? node.edits.join(", ") || "sampled again" : "root";
  const href = `#/run/${encodeURIComponent(node.run)}${node.parent ? `@${node.seq}` : ""}`;
  return h(
    "li",
    { class: here ? "here" : "", style: { "--depth": Math.min(depth, 8) }, "aria-level": depth + 1 },
    h("a", { href, "aria-current": here ? "true" : null },
      h("span", { class: "line" }, dot(node), h("span", { class: "id" }, plain(node.run)), from, h("span", { class: "num" }, number(node.reward))),
      h("span", { class: "edit" }, said(edits))),
    !here && button("diff", () => compare(node.run), { class: "quiet", title: `Compare with ${plain(node.run)}`, "aria-label": `diff with ${plain(node.run)}` }),
  );
}
