// All that is asked of the server, which is the one that served this page.

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
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { error: "the server does not answer", remedy: "Is `clew view` still running? Start it and try again." });
  }
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

/** GET a path of /api; `query` holds its parameters, absent ones left out. */
export async function get(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = given.length ? `?${new URLSearchParams(given)}` : "";
  return (await call(`/api/${path}${search}`, { signal })).json();
}

export async function post(path, body = {}) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return (await call(`/api/${path}`, options)).json();
}

/** Where a whole text lies: of a node, or the observation of a Call. */
export function textPath(key, place = "") {
  return place ? `/api/node/call/text?call=${encodeURIComponent(place)}` : `/api/node/${key}/text`;
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
let source = null;

/** Hear of events: `runs`, `training`, `live`, `reports`, `job`; `up` with whether there was
 * a gap, and `down` as the connection comes and goes. Returns how to stop. */
export function listen(kind, run) {
  if (!listeners.has(kind)) listeners.set(kind, new Set());
  listeners.get(kind).add(run);
  return () => listeners.get(kind).delete(run);
}

function tell(kind, data) {
  for (const run of listeners.get(kind) ?? []) run(data);
}

export function connect() {
  source = new EventSource("/api/events");
  for (const kind of ["runs", "training", "live", "reports", "job"])
    source.addEventListener(kind, (event) => tell(kind, JSON.parse(event.data)));
  let lost = false;
  source.addEventListener("open", () => {
    tell("up", lost); // what happened meanwhile was not heard
    lost = false;
  });
  source.addEventListener("error", () => {
    lost = true;
    tell("down");
  });
  addEventListener("pagehide", () => source.close());
}
