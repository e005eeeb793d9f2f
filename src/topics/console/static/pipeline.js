// Runs of the pipeline and the tables they write, from what jobs write to a topic about themselves.
import { get, keepAsking, post } from "./api.js";
import { TimeChart } from "./chart.js";
import { badge, byId, cell, el, head, number, showRows } from "./dom.js";
import * as format from "./format.js";
import { readReports } from "./reports.js";

const TOPIC = "topics.pipeline";
const KEPT = 1000;
const PAGE = 1000;
const KINDS = ["series-1", "series-2", "series-3", "series-4"];
let records = [];
let position = null;
let chart = null;
let charted = "";

keepAsking(async () => {
  const found = await readNews();
  byId("pipeline-content").hidden = !found;
  showEmpty(!found);
  if (!found) return;
  const { runs, tables, points } = readReports(records);
  showRows(byId("runs"), runs, { key: ({ job, run }) => JSON.stringify([job, run]), cells: runCells });
  byId("lake").hidden = tables.length === 0;
  showRows(byId("tables"), tables, {
    key: ({ lake, table }) => JSON.stringify([lake, table]), cells: tableCells,
  });
  showChart(points);
}, 2000);

/** Read what is new; false where there is nothing at all. */
async function readNews() {
  if (position === null) {
    // A list: to ask for a topic that is not there would be an error, in the browser's log too.
    const { topics } = await get("/v0/topics", { prefix: TOPIC, page_size: 1 });
    if (topics[0]?.topic !== TOPIC) return false;
    position = Math.max(0, topics[0].head_seq - KEPT);
  }
  try {
    const page = await post(`/v0/topics/${TOPIC}/diff`, { from_seq: position, limit: PAGE });
    position = page.next_from_seq;
    records = [...records, ...page.records.map((record) => record.data)].slice(-KEPT);
  } catch (error) {
    if (error.status !== 404 && error.status !== 403) throw error;
    [records, position] = [[], null];
  }
  return records.length > 0;
}

function runCells({ newest, last, rate }) {
  return [
    head(text(newest.job)),
    cell(badge(text(newest.state), text(newest.state))),
    cell(text(newest.run).slice(0, 8)),
    number(amount(last?.batch, format.count)),
    number(amount(last?.rows, format.count)),
    number(amount(rate, format.rate)),
    number(amount(newest.rows, format.count)),
    number(amount(newest.lag, format.count)),
    cell(when(newest.ts)),
  ];
}

function tableCells({ table, lake, rows, ts }) {
  return [head(table), number(amount(rows, format.count)), cell(when(ts)), cell(text(lake))];
}

const text = (value) => (value === null || value === undefined ? "–" : String(value));
const amount = (value, show) => (typeof value === "number" ? show(value) : text(value));
const when = (ts) => (typeof ts === "number" ? format.ago(ts) : text(ts));

/** One line a job, its batches over time; jobs with a line of their own are few. */
function showChart(points) {
  const jobs = [...new Set(points.map(({ job }) => text(job)))].slice(0, KINDS.length);
  byId("rows").hidden = jobs.length === 0;
  const names = JSON.stringify(jobs);
  if (names !== charted) {
    const figure = byId("rows");
    figure.querySelector(".legend")?.remove();
    figure.querySelector(".plot").replaceChildren();
    chart = new TimeChart(figure, jobs.map((label, at) => ({ label, kind: KINDS[at] })), format.rate);
    charted = names;
  }
  const byTime = [...points].sort((a, b) => a.ts - b.ts);
  const columns = jobs.map((job) =>
    byTime.map((point) => (text(point.job) === job ? point.rate : undefined)));
  chart.update(byTime.map(({ ts }) => ts), columns);
}

function showEmpty(isEmpty) {
  const empty = byId("pipeline-empty");
  empty.hidden = !isEmpty;
  if (!isEmpty || empty.childElementCount) return;
  empty.append(
    el("p", {}, "No job has reported yet. This starts one that writes every topic to a lake:"),
    el("pre", {}, "topics pipeline run"),
    el("p", {}, "A job reports to the topic ", el("code", {}, TOPIC), " after every batch."),
  );
}
