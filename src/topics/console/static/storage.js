// Where the bytes are: on the log, in segments here and in the cold tier; and which of them are dead.
import { get, keepAsking, onFilter, showCount } from "./api.js";
import { byId, cell, el, head, number, showRows, showTiles, stackedBar, topicLink } from "./dom.js";
import * as format from "./format.js";

const KINDS = [
  ["fill-3", "log tail, in no segment yet"],
  ["fill-1", "hot segments"],
  ["fill-2", "cold segments"],
  ["fill-dead", "dead: deleted or lost, not yet given back"],
];

const ask = keepAsking(async () => {
  const { totals, topics, matching } = await get("/console/data/storage", { q: byId("filter").value });
  showTiles(byId("totals"), [
    ["Log files (WAL)", format.bytes(totals.wal_bytes)],
    ["Log tail", format.bytes(totals.wal_tail_bytes)],
    [`Hot, ${totals.hot_segments} segments`, format.bytes(totals.hot_bytes)],
    [`Cold, ${totals.cold_segments} segments`, format.bytes(totals.cold_bytes)],
    ["Dead", format.bytes(totals.dead_bytes)],
    ["Records at risk", format.count(totals.at_risk_records)],
    ...(totals.disk_free_bytes === null ? [] : [["Free on the device", format.bytes(totals.disk_free_bytes)]]),
    ...(totals.disk_full ? [["The disk is full", "no records are taken", "bad"]] : []),
    ...(totals.read_only ? [["Read-only shards", format.count(totals.read_only), "bad"]] : []),
  ]);
  showMap(totals);
  showCount(topics.length, matching);
  const most = Math.max(1, ...topics.map((row) => row.tail + row.hot + row.cold));
  showRows(byId("stored"), topics, {
    key: ({ topic }) => topic,
    cells: (row) => [
      head(topicLink(row.topic)),
      cell(stackedBar(parts(row.tail, row.hot, row.cold, row.dead), most, "")),
      number(format.bytes(row.tail)),
      number(format.bytes(row.hot)),
      number(format.bytes(row.cold)),
      number(format.bytes(row.dead)),
      number(format.count(row.segments)),
    ],
  });
}, 3000);
onFilter(ask);

function parts(tail, hot, cold, dead) {
  const deadHot = Math.min(dead, hot);
  const deadCold = Math.min(dead - deadHot, cold);
  const sizes = [tail, hot - deadHot, cold - deadCold, deadHot + deadCold];
  return KINDS.map(([kind], place) => [sizes[place], kind]);
}

function showMap({ wal_tail_bytes, hot_bytes, cold_bytes, dead_bytes }) {
  const all = parts(wal_tail_bytes, hot_bytes, cold_bytes, dead_bytes);
  const whole = wal_tail_bytes + hot_bytes + cold_bytes;
  const spoken = all.map(([size], place) => `${format.bytes(size)} ${KINDS[place][1]}`).join(", ");
  const legend = el("ul", { class: "legend" }, ...all.map(([size, kind], place) =>
    el("li", {}, el("span", { class: `mark ${kind}`, "aria-hidden": "true" }), `${KINDS[place][1]} `,
      el("b", {}, format.bytes(size)))));
  byId("map").replaceChildren(stackedBar(all, whole, spoken), legend);
}
