// Every topic, how fast it grows, and the server as a whole.
import { get, keepAsking, onFilter, showCount } from "./api.js";
import { TimeChart } from "./chart.js";
import { badge, byId, cell, el, head, number, showRows, showTiles, sparkline, topicLink } from "./dom.js";
import * as format from "./format.js";

const chart = new TimeChart(
  byId("rates"),
  [{ label: "appended", kind: "series-1" }, { label: "delivered", kind: "series-2" }],
  format.rate,
);

const askTopics = keepAsking(async () => {
  const { totals, topics, matching } = await get("/console/data/overview", { q: byId("filter").value });
  showTiles(byId("totals"), [
    ["Topics", format.count(totals.topics)],
    ["Records", format.count(totals.records)],
    ["Data", format.bytes(totals.bytes)],
    ["Appended a second", format.rate(totals.appended)],
    ["Delivered a second", format.rate(totals.delivered)],
    ["At risk", format.count(totals.at_risk)],
    ...(totals.disk_full ? [["The disk is full", "no records are taken", "bad"]] : []),
    ...(totals.read_only ? [["Read-only shards", format.count(totals.read_only), "bad"]] : []),
  ]);
  showCount(topics.length, matching);
  showRows(byId("topics"), topics, {
    key: (row) => row.topic,
    cells: (row) => [
      head(topicLink(row.topic)),
      cell(row.partitions === null
        ? badge(row.type, row.type)
        : badge(`${row.partitions} partitions`, "partitioned")),
      cell(row.durability),
      number(format.count(row.count)),
      number(format.bytes(row.bytes)),
      number(format.count(row.head_seq)),
      number(format.rate(row.rate)),
      cell(sparkline(row.rates)),
      cell(row.last_write_ts
        ? el("time", { datetime: format.moment(row.last_write_ts) }, format.ago(row.last_write_ts))
        : "never"),
    ],
  });
}, 2000);
onFilter(askTopics);

keepAsking(async () => {
  const history = await get("/console/data/history");
  chart.update(history.ts, [history.appended ?? [], history.delivered ?? []]);
}, 5000);
