// The stream of the server's events, one for all tabs: a browser opens six connections to a server and no more, and
// streams that each tab held would leave none for requests. As a shared worker this file holds the stream and hands it to
// the tabs; api.js, which starts it, opens a stream of its own where a browser has no shared workers.

const KINDS = ["runs", "training", "live", "reports", "job", "label"];

/** Open the stream. `tell(kind, data)` hears of each event, and of `up` (data: after a gap?) and `down`. */
export function open(tell) {
  const source = new EventSource("/api/events");
  let lost = false;
  for (const kind of KINDS) source.addEventListener(kind, (event) => tell(kind, JSON.parse(event.data)));
  source.addEventListener("open", () => {
    tell("up", lost); // what happened meanwhile was not heard
    lost = false;
  });
  source.addEventListener("error", () => {
    lost = true;
    tell("down");
  });
  return source;
}

if (self.SharedWorkerGlobalScope) {
  const tabs = new Set();
  let source = null;
  const leave = (tab) => {
    tabs.delete(tab);
    if (tabs.size) return;
    source.close();
    source = null;
  };
  self.addEventListener("connect", ({ ports: [tab] }) => {
    tabs.add(tab);
    tab.onmessage = () => leave(tab); // a tab says but one thing, that it is gone
    if (!source || source.readyState === EventSource.CLOSED) source = open((...event) => tabs.forEach((one) => one.postMessage(event)));
    else if (source.readyState === EventSource.OPEN) tab.postMessage(["up", false]);
  });
}
