// The field that finds a text in one run: each Enter goes on to the next Call that says it.

import { get } from "./api.js";
import { h, toast } from "./dom.js";

export class Finder {
  /** at(): the Call that is selected, or null. choose(seq) selects what was found. */
  constructor(run, at, choose) {
    Object.assign(this, { run, at, choose });
    const keydown = (event) => event.key === "Enter" && this.find();
    this.field = h("input", { type: "search", placeholder: "Find in this run", "aria-label": "Find in this run", on: { keydown } });
  }

  /** End the search that is under way. */
  leave() {
    this.left?.abort();
  }

  async find() {
    this.leave();
    this.left = new AbortController();
    const from = this.at() === null ? 0 : this.at() + 1;
    const asked = { run: this.run, text: this.field.value, from };
    try {
      const { seq } = await get("find", asked, { signal: this.left.signal, waiting: ({ wait, done }) => wait === "calls" && (asked.from = done) });
      this.sought = asked.text.toLowerCase();
      if (seq !== null) this.choose(seq);
      else toast(from ? "No further Call says that" : "Nothing here says that");
    } catch (error) {
      if (error.name !== "AbortError") toast(`${error.message} ${error.remedy ?? ""}`);
    }
  }
}
