// The family of a run: every fork with the place where it parted and what was changed there.

import { button, h, plain, put, said } from "./dom.js";
import { number } from "./format.js";
import { dot } from "./runrow.js";

const SHOWN = 400; // runs drawn at once

/** The tree as lines: {node, depth}, the root first. */
export function lines(tree, depth = 0, out = []) {
  out.push({ node: tree, depth });
  for (const child of tree.children ?? []) lines(child, depth + 1, out);
  return out;
}

/** Direct forks of a run by the Call they were forked at. */
export function forksAt(tree, run) {
  const found = new Map();
  const node = lines(tree).find((line) => line.node.run === run)?.node;
  for (const child of node?.children ?? []) {
    if (!found.has(child.seq)) found.set(child.seq, []);
    found.get(child.seq).push(child);
  }
  return found;
}

/** Draw it into `root`; `compare(run)` opens a diff of the run at hand with another. */
export function drawTree(root, tree, run, compare) {
  const all = lines(tree);
  const here = all.findIndex((line) => line.node.run === run);
  let from = Math.max(0, Math.min(here - 20, all.length - SHOWN));
  let to = from + SHOWN;
  const list = h("ol", { class: "tree" });
  const draw = () => {
    put(
      list,
      from > 0 && more(`${from} above`, () => (from = Math.max(0, from - SHOWN))),
      all.slice(from, to).map((line) => branch(line, run, compare)),
      to < all.length && more(`${all.length - to} below`, () => (to += SHOWN)),
    );
  };
  const more = (label, grow) => h("li", {}, button(`Show ${label}`, () => (grow(), draw()), { class: "more" }));
  draw();
  put(root, h("h2", {}, "Forks", h("span", { class: "dim" }, all.length > 1 ? ` ${all.length} runs in the family` : "")), list,
    all.length === 1 && h("p", { class: "hint" }, "Nothing was forked from this run yet. Choose a step or a token and press ", h("kbd", {}, "f"), "."));
}

function branch({ node, depth }, run, compare) {
  const here = node.run === run;
  const at = node.parent ? h("span", { class: "at", title: plain(`forked at ${node.parent}`) }, `@${node.seq}${node.token ? `+${node.token}` : ""}`) : null;
  const edits = node.parent ? node.edits.join(", ") || "sampled again" : "root";
  const href = `#/run/${encodeURIComponent(node.run)}${node.parent ? `@${node.seq}` : ""}`;
  return h(
    "li",
    { class: here ? "here" : "", style: { "--depth": Math.min(depth, 8) }, "aria-level": depth + 1 },
    h("a", { href, "aria-current": here ? "true" : null },
      h("span", { class: "line" }, dot(node), h("span", { class: "id" }, plain(node.run)), at, h("span", { class: "num" }, number(node.reward))),
      h("span", { class: "edit" }, said(edits))),
    !here && button("diff", () => compare(node.run), { class: "quiet", title: `Compare with ${plain(node.run)}`, "aria-label": `Compare with ${plain(node.run)}` }),
  );
}
