// The query a person types and the one that is asked: loose words are searched in the messages.

const TERM = /(?<!\S)-?[A-Za-z_]+(?:-[A-Za-z]+)*(?:!=|<=|>=|<|>|=|:)(?:"(?:[^"\\]|\\.)*"|[^\s"]*)(?=\s|$)/g;
const ID = /^[a-z2-7]{12}$/;

/** Terms as they stand; words without a field become one text:"..." and a run's id becomes id=.... */
export function meant(typed) {
  const terms = typed.match(TERM) ?? [];
  const loose = typed.replace(TERM, " ").replace(/["\\]/g, " ").split(/\s+/).filter(Boolean);
  const ids = loose.filter((word) => ID.test(word));
  const words = loose.filter((word) => !ID.test(word));
  return [...terms, ...ids.map((id) => `id=${id}`), ...(words.length ? [`text:"${words.join(" ")}"`] : [])].join(" ");
}

export function hasTerm(typed, term) {
  return (typed.match(TERM) ?? []).includes(term);
}

/** The same query with a term, or without it if it was there. */
export function toggle(typed, term) {
  if (!hasTerm(typed, term)) return `${typed.trim()} ${term}`.trim();
  return typed.replace(TERM, (found) => (found === term ? "" : found)).replace(/\s+/g, " ").trim();
}

/** The field a query sorts by, and whether it descends. */
export function sorting(typed) {
  const last = (typed.match(TERM) ?? []).filter((term) => term.startsWith("sort:"));
  const field = last[0]?.slice(5) ?? "";
  return { field: field.replace("-", ""), down: field.startsWith("-") };
}

/** Sort by a field: large first, then small first, then as before. */
export function resort(typed, field) {
  const { field: now, down } = sorting(typed);
  const rest = typed.replace(TERM, (found) => (found.startsWith("sort:") ? "" : found)).replace(/\s+/g, " ").trim();
  const next = now !== field ? `sort:-${field}` : down ? `sort:${field}` : "";
  return `${rest} ${next}`.trim();
}

/** A value as a term takes it. */
export function quoted(value) {
  return /[\s"]/.test(value) || value === "" ? `"${value.replace(/(["\\])/g, "\\$1")}"` : value;
}

export const FIELDS = {
  "text:": "words inside messages", "return<": "the judge's reward", "steps>": "actions of the run", "tokens>": "tokens sampled",
  "cost>": "US dollars", "seconds>": "wall time", "world=": "taskset", "task=": "id of the task", "agent=": "its function",
  "model:": "part of a model's name", "stop=": "why it ended; open while it runs", "origin=": "collect, fork, spawn, import",
  "tag:": "a name given by `clew store tag`", "group=": "id of a group", "name=": "name of a collection", "has=": "a method's values",
  "label=": "a verdict given by hand", "stars>": "stars given by hand", "labelled-by:": "who labelled it", "note:": "words of a label's note",
  "parent=": "forked from", "after:": "a date, or 2h for two hours ago", "before:": "the same", "sort:-": "by a field, large first",
};
