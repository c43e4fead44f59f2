// Ways through a run: its outline, its timeline, who worked at it, its errors, and the runs before and after it in a list.

import { failure, h, put, toast } from "./dom.js";
import { Near } from "./near.js";
import { Facts, Outline, gently } from "./outline.js";
import { Timeline } from "./timeline.js";
import { Workings } from "./workings.js";

export class Guide {
  /** view: the run's page, which goes to a Call by `choose` and has the keys in its transcript. */
  constructor(view) {
    this.view = view;
    this.outlineBox = h("nav", { class: "outline", "aria-label": "Outline" });
    this.timelineBox = h("div", { class: "timeline" });
    this.workingsBox = h("div", { class: "workings" });
    this.nearBox = h("span", { class: "near", hidden: true });
    this.facts = new Facts(view.run);
    this.near = new Near(view.run, () => this.near.draw(this.nearBox));
    this.again = gently(() => this.show());
    this.keys = {
      m: ["To the lowest value of the run", () => this.to(this.view.strip.lowest, "No value along this run")],
      e: ["Next error", () => this.toError(1)],
      E: ["Previous error", () => this.toError(-1)],
      o: ["Outline: arrow keys move in it, left and right between its lists, enter back", () => this.toOutline()],
      J: ["Next run of the list it was opened from", () => this.near.go(1) || toast("No run after this one in the list")],
      K: ["Previous run of that list", () => this.near.go(-1) || toast("No run before this one in the list")],
    };
  }

  /** Once the boxes are in the page. */
  begin() {
    const jump = (seq) => this.view.choose(seq, null, true);
    this.timeline = new Timeline(this.timelineBox, jump);
    this.workings = new Workings(this.workingsBox, this.view.run, jump);
    this.outline = new Outline(this.outlineBox, this.facts, { jump, leave: () => this.leave(), forks: () => this.view.forks.keys(), files: () => this.view.files.changed() });
  }

  close() {
    this.timeline?.destroy();
    this.outline?.destroy();
  }

  /** Read what the run has by now. */
  read() {
    this.facts.grow(() => this.again()).catch((error) => put(this.view.notes, failure(error)));
    this.view.files.readPlaces(() => this.again()).catch((error) => put(this.view.notes, failure(error)));
    this.workings.read(this.view.facts.several).catch((error) => put(this.view.notes, failure(error)));
  }

  show() {
    this.outline.show();
    this.timeline.show(this.facts.rows);
    this.mark(this.view.seq);
  }

  mark(seq) {
    this.outline.mark(seq);
    this.timeline.mark(seq);
    this.workings.mark(seq);
  }

  toOutline() {
    this.view.setTab("Outline");
    this.outline.focus();
  }

  leave() {
    this.view.setTab("Transcript");
    if (this.view.seq !== null) this.view.list.show(this.view.seq);
    this.view.transcript.focus({ preventScroll: true });
  }

  toError(by) {
    this.to(this.facts.error(this.view.seq, by), `No error ${by > 0 ? "after" : "before"} this`);
  }

  /** To a Call, where there is one. */
  to(seq, nowhere) {
    if (seq === null) toast(nowhere);
    else this.view.choose(seq, null, true);
  }
}
