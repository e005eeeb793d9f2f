// Runs of the pipeline, from what its jobs write to a topic about themselves.
import { get, keepAsking, post } from "./api.js";
import { TimeChart } from "./chart.js";
import { badge, byId, cell, el, head, number, showRows } from "./dom.js";
import * as format from "./format.js";

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
  const runs = newestOfRuns();
  showRows(byId("runs"), runs, { key: ({ job, run }) => `${job} ${run}`, cells });
  showChart();
}, 2000);

/** Read what is new; false where there is nothing at all. */
async function readNews() {
  try {
    if (position === null) {
      const state = await get(`/v0/topics/${TOPIC}`, { touch: "false" });
      position = Math.max(0, state.head_seq - KEPT);
    }
    const page = await post(`/v0/topics/${TOPIC}/diff`, { from_seq: position, limit: PAGE });
    position = page.next_from_seq;
    const news = page.records.map((record) => record.data).filter(isReport);
    records = [...records, ...news].slice(-KEPT);
  } catch (error) {
    if (error.status !== 404 && error.status !== 403) throw error;
    [records, position] = [[], null];
  }
  return records.length > 0;
}

const isReport = (data) => data !== null && typeof data === "object" && "job" in data && "run" in data;

function newestOfRuns() {
  const runs = new Map();
  for (const report of records) {
    const name = JSON.stringify([report.job, report.run]);
    runs.delete(name);
    runs.set(name, report);
  }
  return [...runs.values()].reverse();
}

function cells(report) {
  return [
    head(text(report.job)),
    cell(text(report.run)),
    cell(badge(text(report.state), text(report.state))),
    cell(text(report.table)),
    number(amount(report.batch, format.count)),
    number(amount(report.rows, format.count)),
    number(amount(report.rows_per_s, format.rate)),
    number(amount(report.lag, format.count)),
    cell(typeof report.ts === "number" ? format.ago(report.ts) : text(report.ts)),
  ];
}

const text = (value) => (value === null || value === undefined ? "–" : String(value));
const amount = (value, show) => (typeof value === "number" ? show(value) : text(value));

/** One line a job, its batches over time; jobs with a line of their own are few. */
function showChart() {
  const points = records.filter((r) => typeof r.ts === "number" && typeof r.rows_per_s === "number");
  const jobs = [...new Set(points.map(({ job }) => text(job)))].slice(0, KINDS.length);
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
    byTime.map((report) => (text(report.job) === job ? report.rows_per_s : undefined)));
  chart.update(byTime.map(({ ts }) => ts), columns);
}

function showEmpty(isEmpty) {
  const empty = byId("pipeline-empty");
  empty.hidden = !isEmpty;
  if (!isEmpty || empty.childElementCount) return;
  empty.append(
    el("p", {}, "No run has reported yet. A job reports to the topic ", el("code", {}, TOPIC),
      " after every batch; start one, or write a report yourself:"),
    el("pre", {}, `POST /v0/topics/${TOPIC}\n` + JSON.stringify({ records: [{ data: {
      job: "orders", run: "r1", state: "running", batch: 1, rows: 500, rows_per_s: 250, lag: 0,
      table: "bronze.orders", ts: 1767225600000,
    } }] })),
  );
}
