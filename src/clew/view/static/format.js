// Numbers, times and names as they are shown. Absent is "–" or nothing, never 0.

const NONE = "–";

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return NONE;
  if (Number.isInteger(value)) return whole(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return minus(value.toExponential(2));
  return minus(value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : digits));
}

export function whole(value) {
  return value === null || value === undefined ? NONE : minus(Math.round(value).toLocaleString("en-US"));
}

/** Tokens; a dash for 0, which stands for what nobody counted. */
export const counted = (value) => whole(value || null);

/** With its sign, for what may be either: +0.31, −0.05. */
export function signed(value, digits = 2) {
  if (value === null || value === undefined) return NONE;
  const text = number(value, digits);
  return value > 0 ? `+${text}` : text;
}

export function share(value, digits = 1) {
  return value === null || value === undefined ? NONE : `${(100 * value).toFixed(digits)} %`;
}

export function money(value) {
  if (!value) return value === 0 ? "0" : NONE;
  return `$${value < 0.01 ? value.toPrecision(2) : value.toFixed(value < 10 ? 3 : 2)}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value < 0.001) return value === 0 ? "0 s" : `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 60 ? `${minutes} m ${Math.round(value % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} m`;
}

export function bytes(count) {
  if (count < 10_000) return `${whole(count)} characters`;
  return count < 1e6 ? `${Math.round(count / 1000)} k characters` : `${(count / 1e6).toFixed(1)} M characters`;
}

/** Bytes of a file: 812 B, 4.1 kB, 50 MB. */
export function size(count) {
  if (count === null || count === undefined) return NONE;
  const unit = ["B", "kB", "MB", "GB"].findIndex((_, i) => count < 999.5 * 1000 ** i || i === 3);
  const value = count / 1000 ** unit;
  return `${unit === 0 || value >= 9.95 ? whole(value) : value.toFixed(1)} ${["B", "kB", "MB", "GB"][unit]}`;
}

/** A time of today as 14:03:22, else with its day. Seconds since the epoch. */
export function when(stamp) {
  if (!stamp) return NONE;
  const date = new Date(stamp * 1000);
  const two = (n) => String(n).padStart(2, "0");
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (date.toDateString() === new Date().toDateString()) return `${clock}:${two(date.getSeconds())}`;
  return `${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}`;
}

/** The whole time, for a title. */
export function moment(stamp) {
  return stamp ? new Date(stamp * 1000).toISOString().replace("T", " ").replace("Z", " UTC") : NONE;
}

/** The last part of a path or of a reference: `a.b:player` gives player, `x/checkpoint` gives checkpoint. */
export function tail(name) {
  return (name || "").replace(/\/+$/, "").split(/[/:](?=[^/:(]+$|[^/:(]*\()/).pop();
}

export function plural(count, one, many = `${one}s`) {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

/** Whether a run broke: its agent, its model or its world failed. */
export function crashed(row) {
  return (row.stop ?? "").endsWith("_error");
}

/** How a run stands: `open` while it runs, `good` or `bad` by its reward, `crash` or `none` where no one judged it. */
export function verdict(row) {
  if (row.reward !== null && row.reward !== undefined) return row.reward > 0.5 ? "good" : "bad";
  if (crashed(row)) return "crash";
  return row.stop ? "none" : "open";
}

function minus(text) {
  return text.replace(/^-/, "−").replace("e-", "e−");
}
