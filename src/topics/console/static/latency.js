// How long writes and syncs take: over the last hour, and all of them since the start.
import { get, keepAsking } from "./api.js";
import { TimeChart } from "./chart.js";
import { byId, cell, el, head, number, showRows } from "./dom.js";
import * as format from "./format.js";

const SERIES = [{ label: "p50", kind: "series-1" }, { label: "p99", kind: "series-2" }];
const charts = {
  write: new TimeChart(byId("write"), SERIES, format.micros),
  fsync: new TimeChart(byId("fsync"), SERIES, format.micros),
};

keepAsking(async () => {
  const history = await get("/console/data/history");
  for (const [name, chart] of Object.entries(charts)) {
    chart.update(history.ts, [history[`${name}_p50_us`] ?? [], history[`${name}_p99_us`] ?? []]);
  }
}, 5000);

keepAsking(async () => {
  const { histograms, routes } = await get("/console/data/latency");
  for (const name of Object.keys(charts)) showBars(byId(`${name}-bars`), histograms[name]);
  routes.sort((a, b) => b.count - a.count);
  showRows(byId("routes"), routes, {
    key: ({ route, status }) => `${route} ${status}`,
    cells: (one) => [
      head(one.route),
      cell(one.status),
      number(format.count(one.count)),
      number(format.micros(one.p50_us)),
      number(format.micros(one.p99_us)),
    ],
  });
}, 3000);

/** A table whose second column is a bar: a histogram that can be read aloud. */
function showBars(place, { bounds, counts }) {
  const most = Math.max(1, ...counts);
  const last = counts.findLastIndex((value) => value > 0);
  if (last < 0) {
    place.replaceChildren(el("p", { class: "empty" }, "None yet."));
    return;
  }
  const first = counts.findIndex((value) => value > 0);
  const rows = counts.slice(first, last + 1).map((value, at) => {
    const bound = bounds[first + at];
    const name = bound === undefined ? `over ${format.micros(bounds.at(-1))}` : `to ${format.micros(bound)}`;
    const bar = el("span", { class: "bar fill-1" });
    bar.style.inlineSize = `${(100 * value) / most}%`;
    return el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "bars" }, bar),
      el("td", { class: "number" }, format.count(value)));
  });
  const titles = el("tr", {}, ...["Took", "Share", "Count"].map((title) =>
    el("th", { scope: "col" }, title)));
  place.replaceChildren(el("table", { class: "histogram" },
    el("thead", {}, titles), el("tbody", {}, ...rows)));
}
