// Calls of a run as the server tells them, by range.

import { get, name } from "./api.js";

export async function readCalls(run, start, stop) {
  const { calls, total } = await get(`run/${name(run)}/calls`, { start, stop });
  return { rows: calls, total };
}

/** The last ask of a run of `total` Calls; its last Call where none is near its end. */
export async function lastAsk(run, total) {
  const { rows } = await readCalls(run, Math.max(0, total - 20), total);
  return rows.filter((call) => call.kind === "ask").at(-1)?.seq ?? total - 1;
}
