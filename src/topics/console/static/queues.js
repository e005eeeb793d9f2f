// The board of queues: who waits, who works, what died; and the way back for dead letters.
import { get, keepAsking, may, onFilter, post, showCount, showOutcome } from "./api.js";
import { confirmed } from "./confirm.js";
import { byId, cell, el, head, number, showRows, stackedBar, topicLink } from "./dom.js";
import * as format from "./format.js";

const mayRedrive = may("read", "write", "delete");

const ask = keepAsking(async () => {
  const { queues, matching } = await get("/console/data/queues", { q: byId("filter").value });
  showCount(queues.length, matching);
  showRows(byId("queues"), queues, { key: (queue) => queue.topic, cells });
}, 2000);
onFilter(ask);

function cells(queue) {
  const whole = queue.ready + queue.in_flight + queue.waiting;
  const label = `${queue.ready} ready, ${queue.in_flight} leased, ${queue.waiting} delayed`;
  return [
    head(topicLink(queue.topic)),
    number(format.count(queue.ready)),
    number(format.count(queue.in_flight)),
    number(format.count(queue.waiting)),
    cell(stackedBar(
      [[queue.ready, "fill-1"], [queue.in_flight, "fill-2"], [queue.waiting, "fill-3"]], whole, label,
    )),
    el("td", { class: queue.dead > 0 ? "number bad" : "number" }, format.count(queue.dead)),
    cell(queue.dead_letter ? topicLink(queue.dead_letter) : "none"),
    cell(redriveButton(queue)),
  ];
}

function redriveButton(queue) {
  if (!mayRedrive || !queue.redrivable || queue.dead === 0) return null;
  return el("button", {
    type: "button", class: "small", "data-redrive": queue.dead_letter, "data-dead": queue.dead,
    "aria-label": `Redrive ${queue.dead_letter}`,
  }, "Redrive");
}

byId("queues").addEventListener("click", async ({ target }) => {
  const topic = target.dataset?.redrive;
  if (!topic) return;
  const letters = target.dataset.dead === "1" ? "1 dead letter" : `${target.dataset.dead} dead letters`;
  const question = `Put ${letters} of ${topic} back into the queues they come from, to be worked on again?`;
  if (!(await confirmed(question, "Redrive"))) return;
  target.disabled = true;
  try {
    const { moved, left, stopped } = await post(
      `/v0/topics/${encodeURIComponent(topic)}/redrive`, { max: 1000 },
    );
    const rest = left ? `, ${left} left` : "";
    const why = stopped ? ` Stopped: ${stopped.message}` : "";
    showOutcome(`${moved} back from ${topic}${rest}.${why}`, stopped ? "problem" : "done");
  } catch (error) {
    showOutcome(error.message, "problem");
  }
  target.blur();
  target.disabled = false;
  ask();
});
