// Consumer groups: how far each is behind, now and over the last hour.
import { get, keepAsking } from "./api.js";
import { TimeChart } from "./chart.js";
import { badge, byId, cell, el, head, number, showRows, sparkline, stackedBar, topicLink } from "./dom.js";
import * as format from "./format.js";

const chart = new TimeChart(byId("lag"), [{ label: "behind", kind: "series-1" }], format.count);
let chosen = new URLSearchParams(location.search).get("group");

const ask = keepAsking(async () => {
  const { groups } = await get("/console/data/groups");
  byId("groups-content").hidden = groups.length === 0;
  showEmpty(groups.length === 0);
  if (groups.length === 0) return;
  if (!groups.some(({ group }) => group === chosen)) chosen = groups[0].group;
  showRows(byId("groups"), groups, {
    key: ({ group }) => group,
    cells: (group) => [
      head(el("a", {
        href: `?group=${encodeURIComponent(group.group)}`,
        "aria-current": group.group === chosen ? "true" : null,
      }, group.group)),
      cell(badge(group.state, group.state)),
      number(format.count(group.members)),
      number(group.generation),
      number(format.count(group.lag)),
      cell(sparkline(group.lags)),
    ],
  });
  showGroup(await get(`/v0/groups/${encodeURIComponent(chosen)}`));
  const history = await get("/console/data/history", { group: chosen });
  chart.update(history.ts, [history.group ?? []]);
}, 3000);

byId("groups").addEventListener("click", (event) => {
  const row = event.target.closest("a")?.closest("tr");
  if (!row) return;
  event.preventDefault();
  chosen = row.dataset.key;
  window.history.replaceState(null, "", `?group=${encodeURIComponent(chosen)}`);
  ask();
});

function showGroup({ group, partitions, lag_total }) {
  if (byId("group-name").textContent !== group) byId("group-name").textContent = group;
  showRows(byId("partitions"), partitions, {
    key: ({ topic, partition }) => `${topic} ${partition}`,
    cells: (one) => [
      head(topicLink(one.topic)),
      number(one.partition),
      cell(one.owner ?? "nobody"),
      number(one.committed === null ? "–" : format.count(one.committed)),
      number(format.count(one.head_seq)),
      number(format.count(one.lag)),
      cell(stackedBar([[one.lag, "fill-1"]], lag_total, `${one.lag} of ${lag_total}`)),
    ],
  });
}

function showEmpty(isEmpty) {
  const empty = byId("groups-empty");
  empty.hidden = !isEmpty;
  if (!isEmpty || empty.childElementCount) return;
  empty.append(
    el("p", {}, "There are no consumer groups. A consumer makes one when it joins:"),
    el("pre", {}, 'POST /v0/groups/GROUP/join\n{"member": "worker-1", "topics": ["orders"]}'),
  );
}
