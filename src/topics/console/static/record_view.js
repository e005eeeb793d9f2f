// One record as an item of a list.
import { badge, el } from "./dom.js";
import { clock, moment } from "./format.js";
import { jsonView, plainNumber } from "./json_view.js";

/** `actions` gives the buttons of a record by its seq and topic. */
export function recordView(record, topic, { actions, open = 0, named = false }) {
  const seq = plainNumber(record.$seq);
  const ts = plainNumber(record.$ts);
  const line = el("div", { class: "record-line" },
    el("b", { class: "seq" }, seq),
    el("time", { datetime: moment(ts) }, clock(ts)),
    named ? el("span", {}, topic) : null,
    record.$tag === undefined ? null : badge(record.$tag, "tag"),
    record.$node === undefined ? null : badge(`from ${record.$node}`),
    el("span", { class: "actions" }, ...actions(seq, topic)),
  );
  const meta = record.meta
    ? el("div", { class: "meta" }, el("span", { class: "quiet-text" }, "meta "), jsonView(record.meta))
    : null;
  return el("li", { class: "record", "data-seq": seq, "data-tag": record.$tag ?? "" }, line, jsonView(record.data, open), meta);
}

export function gapView(gap) {
  const text = `${gap.gap_from} to ${gap.gap_to} are lost (${gap.reason})`;
  return el("li", { class: "record gap" }, text);
}
