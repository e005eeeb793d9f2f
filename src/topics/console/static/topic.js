// One topic: its state, and what is written to it as it is written.
import { get, keepAsking, may, post, showOutcome } from "./api.js";
import { TimeChart } from "./chart.js";
import { confirmed } from "./confirm.js";
import { badge, byId, el, showTiles, topicLink } from "./dom.js";
import * as format from "./format.js";
import { recordView } from "./record_view.js";
import { Tail } from "./tail.js";

const topic = byId("topic").dataset.topic;
const path = `/v0/topics/${encodeURIComponent(topic)}`;
const chart = new TimeChart(byId("rate"), [{ label: "appended", kind: "series-1" }], format.rate);

keepAsking(async () => {
  const state = await get(path, { touch: "false" });
  byId("badges").replaceChildren(
    badge(state.type, state.type), " ", badge(state.config.durability),
  );
  if (state.partitions) showPartitions(state.partitions);
  const queue = state.queue
    ? [["Ready", format.count(state.queue.ready)], ["Leased", format.count(state.queue.in_flight)],
      ["Dead-lettered", format.count(state.queue.dead_lettered)]]
    : [];
  // A topic with partitions has no seqs of its own.
  const seqs = state.partitions ? [] : [
    ["Oldest seq", String(state.earliest_seq)],
    ["Newest seq", String(state.head_seq)],
    ...(state.evict_floor > 1 ? [["Evicted below", String(state.evict_floor)]] : []),
  ];
  showTiles(byId("state"), [
    ["Records", format.count(state.count)],
    ["Data", format.bytes(state.bytes)],
    ...seqs,
    ["Last write", format.ago(state.last_write_ts)],
    ["Last read", format.ago(state.last_read_ts)],
    ["Segments", `${state.segments} (${state.cold_segments} cold)`],
    ...queue,
  ]);
}, 2000);

/** The way to the partitions, where a record can be found by its seq. */
function showPartitions(partitions) {
  byId("peek-form").hidden = true;
  const list = byId("parts");
  list.hidden = false;
  while (list.children.length < partitions.length) {
    list.append(el("li", {}, topicLink(partitions[list.children.length].topic)));
  }
}

keepAsking(async () => {
  const history = await get("/console/data/history", { topic });
  chart.update(history.ts, [history.topic]);
}, 5000);

if (matchMedia("(max-width: 40rem)").matches) byId("config").open = false;

// Sending a record again.

const actions = may("read", "write") ? (seq, from) => [
  el("button", { type: "button", class: "small", click: (event) => resend(from, seq, event.target) },
    "Send again"),
] : () => [];

async function resend(from, seq, button) {
  const question = `Append what record ${seq} of ${from} holds once more, as a new record?`;
  if (!(await confirmed(question, "Send again"))) return;
  button.disabled = true;
  try {
    const sent = await post(`/console/resend/${encodeURIComponent(from)}`, { seq });
    button.textContent = `Sent as ${sent.seq}`;
  } catch (error) {
    button.disabled = false;
    showOutcome(error.message, "problem");
  }
}

// The tail.

const tail = new Tail(topic, { list: byId("tail"), state: byId("tail-state"), actions });
tail.start("");

byId("tag-form").addEventListener("submit", (event) => {
  event.preventDefault();
  tail.filter(byId("tag").value.trim());
});

byId("pause").addEventListener("click", ({ target }) => {
  const isPaused = target.getAttribute("aria-pressed") !== "true";
  target.setAttribute("aria-pressed", String(isPaused));
  target.textContent = isPaused ? "Go on" : "Pause";
  tail.pause(isPaused);
});

// One record by its seq.

byId("peek-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const seq = byId("peek").valueAsNumber;
  const place = byId("peeked");
  try {
    const page = await post(`${path}/diff`, { from_seq: seq - 1, limit: 1, include_tags: true });
    const record = page.records[0];
    place.replaceChildren(
      record && record.$seq === seq
        ? el("ol", { class: "records", "aria-label": `Record ${seq}` }, recordView(record, topic, { actions, open: 2 }))
        : el("p", { class: "empty" }, `There is no record ${seq}: deleted, lost, or not yet written.`),
    );
  } catch (error) {
    place.replaceChildren(el("p", { class: "problem" }, error.message));
  }
});
