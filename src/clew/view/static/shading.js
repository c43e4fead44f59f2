// What the replies of a run can be shaded by, as a list to choose from, and the legend of what is chosen.

import { h, plain, put } from "./dom.js";
import { featureOf } from "./feature.js";
import { Shade } from "./tokens.js";

/** Values that replies can be shaded by: what the model said of itself, then every method. */
export function shadesOf(facts) {
  const methods = facts.methods.filter((m) => m.target === "call" || m.target === "tokens").map((m) => m.method);
  return [...new Set([...facts.shades, ...methods])];
}

/** The value that an address asks for, where the run has it. */
export const wantedShade = (facts, query) => (shadesOf(facts).includes(query.get("shade")) ? query.get("shade") : null);

/** Fill the list and the legend; gives the Shade, null for none. A feature goes by what it stands for. */
export function shadeBy(value, facts, list, legend) {
  const called = (one) => facts.names?.[one] ?? one;
  put(list, [...shadesOf(facts), ""].map((one) => h("option", { value: one, title: plain(one) }, plain(called(one) || "nothing"))));
  list.value = value;
  const shade = value ? new Shade(value, facts.methods.find((m) => m.method === value), called(value)) : null;
  const feature = featureOf(value);
  put(legend, shade?.legend(), feature && h("a", { href: feature }, "About it"));
  return shade;
}
