// What axe's rules ask of a page, as far as this page once broke them (no axe is part of the environment): controls in
// controls, children that a role needs, names that say something else than what is seen, boxes that scroll and cannot be
// reached, fields and images without a name, an id that stands twice, and text that its ground swallows.
() => {
  const found = [];
  const seen = (el) => el.checkVisibility({ visibilityProperty: true }) && el.getClientRects().length;
  const said = (el, what) => found.push(`${what}: ${el.outerHTML.slice(0, 160)}`);
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  const control = "a[href], button, input, select, textarea, summary, [role=slider], [role=tab]";
  for (const el of all(control)) if (el.parentElement.closest("a[href], button, [role=slider], [role=tab], select")) said(el, "control in a control");
  const needs = { grid: "row", row: "gridcell", rowgroup: "row", tablist: "tab", list: "listitem" };
  for (const [role, child] of Object.entries(needs))
    for (const el of all(`[role=${role}]`))
      for (const one of el.children) {
        const role = one.getAttribute("role");
        if (!seen(one) || role === child || role === "rowgroup" || (child === "listitem" && one.classList.contains("flow"))) continue;
        if (one.querySelector(`[role=${child}]`) || one.getAttribute("role") === "status" || one.classList.contains("notice")) continue;
        said(one, `not a ${child} in a ${el.getAttribute("role")}`);
      }
  for (const el of all("a[aria-label], button[aria-label]")) {
    const text = el.innerText.replace(/\s+/g, " ").trim().toLowerCase();
    if (/[a-z]{2}/.test(text) && !el.getAttribute("aria-label").toLowerCase().includes(text)) said(el, "its name is not what it shows");
  }
  for (const el of all("a[href], button")) if (!(el.innerText.trim() || el.getAttribute("aria-label") || el.title || el.querySelector("img[alt]"))) said(el, "no name");
  for (const el of all("input, select, textarea")) if (!(el.labels?.length || el.getAttribute("aria-label"))) said(el, "field without a name");
  for (const el of document.querySelectorAll("img")) if (!el.hasAttribute("alt")) said(el, "image without a text");
  for (const el of all("svg[role=img]")) if (!el.getAttribute("aria-label")) said(el, "drawing without a name");
  const ids = [...document.querySelectorAll("[id]")].map((el) => el.id);
  for (const id of new Set(ids)) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`twice: ${id}`);
  for (const el of all("main *")) {
    const style = getComputedStyle(el);
    const scrolls = (/auto|scroll/.test(style.overflowY) && el.scrollHeight > el.clientHeight + 1) || (/auto|scroll/.test(style.overflowX) && el.scrollWidth > el.clientWidth + 1);
    if (scrolls && el.tabIndex < 0 && ![...el.querySelectorAll(control + ", [tabindex='0']")].some(seen)) said(el, "scrolls and cannot be reached");
  }
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (el) => {
    const layers = [];
    for (let one = el; one; one = one.parentElement) {
      const layer = rgba(getComputedStyle(one).backgroundColor);
      layers.push(layer);
      if (layer[3] === 255) break;
    }
    return layers.reduceRight((below, [r, g, b, a]) => [r, g, b].map((v, i) => (v * a + below[i] * (255 - a)) / 255), [255, 255, 255]);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const judged = new Set();
  while (walker.nextNode()) {
    const el = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || judged.has(el) || !seen(el) || el.closest("button:disabled, .toast, .hidden, .skip, svg, option")) continue;
    judged.add(el);
    const back = ground(el);
    const [r, g, b, a] = rgba(getComputedStyle(el).color);
    const ink = [r, g, b].map((v, i) => (v * a + back[i] * (255 - a)) / 255);
    const [high, low] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) said(el, `contrast ${ratio.toFixed(2)}`);
  }
  return found;
}
