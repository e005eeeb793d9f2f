// Consumer groups: who is in them, what each owns, how far they are behind now and over the last hour.
import { get, keepAsking, onFilter, showCount } from "./api.js";
import { TimeChart, WHOLE } from "./chart.js";
import { badge, byId, cell, el, head, number, showRows, sparkline, stackedBar, topicLink } from "./dom.js";
import * as format from "./format.js";

const chart = new TimeChart(byId("lag"), [{ label: "behind", kind: "series-1" }], format.count, WHOLE);
let chosen = new URLSearchParams(location.search).get("group");

const ask = keepAsking(async () => {
  const wanted = byId("filter").value;
  const { groups, matching } = await get("/console/data/groups", { q: wanted });
  const isEmpty = groups.length === 0 && wanted === "";
  byId("groups-content").hidden = isEmpty;
  showEmpty(isEmpty);
  showCount(groups.length, matching);
  if (!groups.some(({ group }) => group === chosen)) chosen = groups[0]?.group ?? chosen;
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
  byId("group").hidden = groups.length === 0;
  if (groups.length === 0) return;
  showGroup(await get(`/v0/groups/${encodeURIComponent(chosen)}`));
  const history = await get("/console/data/history", { group: chosen });
  chart.update(history.ts, [history.group ?? []]);
}, 3000);
onFilter(ask);

byId("groups").addEventListener("click", (event) => {
  const row = event.target.closest("a")?.closest("tr");
  if (!row) return;
  event.preventDefault();
  chosen = row.dataset.key;
  window.history.replaceState(null, "", `?group=${encodeURIComponent(chosen)}`);
  ask();
});

function showGroup({ group, generation, assignor, members, partitions, lag_total }) {
  const title = `${group}: generation ${generation}, ${assignor}`;
  if (byId("group-name").textContent !== title) byId("group-name").textContent = title;
  byId("no-members").hidden = members.length > 0;
  byId("members").parentElement.hidden = members.length === 0;
  showRows(byId("members"), members, {
    key: ({ member }) => member,
    cells: (one) => [
      head(one.member),
      cell(holdings(one)),
      number(`${format.duration(one.session_ms - one.expires_in_ms)} ago`),
      number(format.duration(one.session_ms)),
    ],
  });
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

/** What a member works on, and what of it is on its way to another. */
function holdings({ assigned, release }) {
  const leaving = named(release);
  return (named(assigned) || "nothing") + (leaving ? `, and gives up ${leaving}` : "");
}

/** Partitions by topic as text: `orders 0–2, 5`. */
function named(partitions) {
  return Object.entries(partitions).map(([topic, numbers]) => `${topic} ${ranges(numbers)}`).join("; ");
}

function ranges(numbers) {
  const found = [];
  for (const one of numbers) {
    if (found.length && found.at(-1)[1] === one - 1) found.at(-1)[1] = one;
    else found.push([one, one]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
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
