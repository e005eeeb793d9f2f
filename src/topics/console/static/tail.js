// A watch over one topic, shown newest first and bounded.
import { get, post } from "./api.js";
import { parseExact, plainNumber } from "./json_view.js";
import { gapView, recordView } from "./record_view.js";

const KEPT = 200;
const BEGIN = 20;
const NAMED = 64;
const RETRY_MS = 2000;

export class Tail {
  constructor(topic, { list, state, actions }) {
    this.topic = topic;
    this.list = list;
    this.state = state;
    this.actions = actions;
    this.waiting = [];
    this.isPaused = false;
    this.tag = "";
    this.watched = "";
    this.status = "";
    this.source = null;
    this.run = 0;
    this.drawing = false;
    addEventListener("pagehide", () => this.source?.close());
  }

  /** Show this tag alone, or all of them; a paused tail shows what of it is there already. */
  filter(tag) {
    this.tag = tag;
    if (this.isPaused) this.sift();
    else this.start(tag);
  }

  sift() {
    for (const item of this.list.children) item.hidden = !fits(item.dataset.tag, this.tag);
    this.show(this.status);
  }

  /** Watch anew, a little way back; a tag that ends with * stands for all that begin so. */
  async start(tag) {
    this.run += 1;
    this.tag = this.watched = tag;
    const run = this.run;
    this.source?.close();
    this.list.replaceChildren();
    this.waiting = [];
    this.show("connecting");
    const match = tag === "" ? null : tag.endsWith("*") ? ["tag", "Glob", tag] : ["tag", "Eq", tag];
    try {
      const url = await this.open(match);
      if (run === this.run) this.follow(url, () => this.start(tag));
    } catch (error) {
      if (run !== this.run) return;
      this.show(error.message);
      if (error.status === undefined || error.status >= 429) {
        setTimeout(() => run === this.run && this.start(tag), RETRY_MS);
      }
    }
  }

  async open(match) {
    const state = await get(`/v0/topics/${encodeURIComponent(this.topic)}`, { touch: "false" });
    const topics = {};
    for (const { topic, earliest_seq, head_seq } of state.partitions ?? [state]) {
      topics[topic] = { from_seq: Math.max(0, earliest_seq - 1, head_seq - BEGIN) };
    }
    const isWide = Object.keys(topics).length > NAMED; // too many to name: from now on
    const watch = await post("/v0/watch", {
      topics: isWide ? { [this.topic]: { tail: true } } : topics,
      include_tags: true,
      ...(match ? { match } : {}),
    });
    return watch.stream_url;
  }

  follow(url, again) {
    const source = new EventSource(url);
    this.source = source;
    const take = (view) => (event) => {
      const body = parseExact(event.data);
      this.add(view(body));
    };
    source.addEventListener("record", take((body) =>
      body.records.map((record) => ({ record, topic: body.topic }))));
    source.addEventListener("tombstone", take((body) => [{ gap: body }]));
    source.addEventListener("caught-up", () => this.show("live"));
    source.addEventListener("topic-deleted", () => this.show("the topic was deleted"));
    source.addEventListener("open", () => this.show("live"));
    source.addEventListener("error", () => {
      this.show("reconnecting");
      // The browser comes back by itself, unless the server has forgotten the watch.
      if (source.readyState === EventSource.CLOSED && source === this.source) {
        setTimeout(() => source === this.source && again(), RETRY_MS);
      }
    });
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    if (!isPaused && this.tag !== this.watched) {
      this.start(this.tag);
      return;
    }
    this.show(this.status);
    if (!isPaused) this.draw();
  }

  add(items) {
    this.waiting.push(...items);
    if (this.waiting.length > KEPT) this.waiting.splice(0, this.waiting.length - KEPT);
    if (this.isPaused) {
      this.show(this.status);
    } else if (!this.drawing) {
      this.drawing = true;
      requestAnimationFrame(() => this.draw());
    }
  }

  draw() {
    this.drawing = false;
    if (this.isPaused) return;
    const fresh = this.waiting.map((item) =>
      item.gap ? gapView(plain(item.gap)) : this.view(item),
    );
    this.waiting = [];
    this.list.prepend(...fresh.reverse());
    while (this.list.children.length > KEPT) this.list.lastElementChild.remove();
  }

  view({ record, topic }) {
    return recordView(record, topic, { actions: this.actions, named: topic !== this.topic });
  }

  /** Say how the watch is; while it is paused, that comes first. */
  show(status) {
    this.status = status;
    const waiting = this.waiting.filter(({ gap, record }) => gap || fits(record.$tag ?? "", this.tag)).length;
    const more = this.waiting.length === KEPT ? " or more" : "";
    const news = waiting ? `, ${waiting}${more} new` : "";
    const shown = [...this.list.children].filter((item) => !item.hidden).length;
    const sifted = this.tag === this.watched ? "" : `, ${shown} of ${this.list.children.length} shown`;
    const trouble = status === "live" ? "" : ` (${status})`;
    const text = this.isPaused ? `paused${sifted}${news}${trouble}` : status;
    if (this.state.textContent !== text) this.state.textContent = text;
  }
}

/** Tell whether a record with this tag is looked for; a gap, which has none to look at, always is. */
function fits(tag, wanted) {
  if (wanted === "" || tag === undefined) return true;
  return wanted.endsWith("*") ? tag.startsWith(wanted.slice(0, -1)) : tag === wanted;
}

function plain(gap) {
  return { ...gap, gap_from: plainNumber(gap.gap_from), gap_to: plainNumber(gap.gap_to) };
}
