// All that is asked of the server, which is the one that served this page.

import { open } from "./stream.js";

/** What the server said was wrong, and what it says helps. */
export class Refused extends Error {
  constructor(status, said) {
    super(said.error || `the server answered ${status}`);
    Object.assign(this, { status, remedy: said.remedy || "", kind: said.kind || "" });
  }
}

async function call(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refused(0, { error: "the server does not answer", remedy: "Is `clew view` still running? Start it and try again." });
  }
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

/**
 * GET a path of /api; `query` holds its parameters, absent ones left out. Where the server must first make what the
 * answer needs, it says how far that is and is asked again; `waiting` hears it, and may change the query for the next time.
 */
export async function get(path, query = {}, { signal, waiting } = {}) {
  const asked = new AbortController(); // what whoever waits for it may stop
  const either = signal ? AbortSignal.any([signal, asked.signal]) : asked.signal;
  try {
    for (;;) {
      const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
      const search = given.length ? `?${new URLSearchParams(given)}` : "";
      const answer = await call(`/api/${path}${search}`, { signal: either });
      const said = await answer.json();
      if (answer.status !== 202) return said;
      waiting?.(said);
      tell("wait", { asked, ...said, stop: () => asked.abort(new Refused(0, { error: "the search was stopped", remedy: "What was read is kept: search again to go on from there." })) });
    }
  } catch (error) {
    throw asked.signal.aborted ? asked.signal.reason : error; // a body that is cut off has an error of its own
  } finally {
    tell("wait", { asked });
  }
}

export async function post(path, body = {}) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (await call(`/api/${path}`, options)).json();
}

/** Where a whole text lies: of a node, or the observation of a Call. */
export function textPath(key, place = "") {
  return place ? `/api/node/call/text?call=${encodeURIComponent(place)}` : `/api/node/${key}/text`;
}

/** An image of a message, or of what a Call showed. */
export function imagePath(at, key, place = "") {
  return place ? `/api/node/call/image/${at}?call=${encodeURIComponent(place)}` : `/api/node/${key}/image/${at}`;
}

export async function wholeText(path) {
  return (await call(path)).text();
}

export const name = encodeURIComponent;

/** D3, which only the views that plot wait for. */
export function plotting() {
  plotting.ready ??= new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = "/static/d3.js";
    script.onload = done;
    script.onerror = () => fail(new Refused(0, { error: "D3 did not load", remedy: "It comes with `pip install clew`: is mpld3 installed?" }));
    document.head.append(script);
  });
  return plotting.ready;
}

// Server-sent events, handed to whoever listens; the browser reconnects by itself.
const listeners = new Map();

/** Hear of events: `runs`, `training`, `live`, `reports`, `job`, `label`; `up` with whether there was
 * a gap, and `down` as the connection comes and goes; `wait` as `get` waits. Returns how to stop. */
export function listen(kind, run) {
  if (!listeners.has(kind)) listeners.set(kind, new Set());
  listeners.get(kind).add(run);
  return () => listeners.get(kind).delete(run);
}

function tell(kind, data) {
  for (const run of listeners.get(kind) ?? []) run(data);
}

/** Begin to hear: over the stream that all tabs share, or over one of this tab's own, which closes while it is hidden. */
export function connect() {
  const leave = self.SharedWorker ? join() : alone();
  addEventListener("pagehide", leave, { once: true });
  addEventListener("pageshow", (event) => event.persisted && (connect(), tell("up", true)), { once: true }); // back from the cache
}

function join() {
  const { port } = new SharedWorker("/static/stream.js", { type: "module", name: "clew" });
  port.onmessage = ({ data }) => tell(...data);
  return () => port.postMessage("gone");
}

function alone() {
  let source = open(tell);
  const turn = () => {
    source.close();
    if (document.hidden) return;
    source = open(tell);
    tell("up", true);
  };
  document.addEventListener("visibilitychange", turn);
  return () => {
    document.removeEventListener("visibilitychange", turn);
    source.close();
  };
}
