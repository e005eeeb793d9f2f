// What the reports of jobs add up to: their runs, the tables of lakes, rows a second. Pure.

const isObject = (value) => value !== null && typeof value === "object";
const isReport = (data) => isObject(data) && "job" in data && "run" in data;

/** Take reports, oldest first; anything else is left out, whoever wrote it. */
export function readReports(records) {
  const runs = new Map();
  const tables = new Map();
  const points = [];
  for (const report of records.filter(isReport)) {
    const name = JSON.stringify([report.job, report.run]);
    const before = runs.get(name);
    const batch = batchOf(report, before?.newest);
    runs.delete(name); // the newest comes last
    runs.set(name, {
      job: report.job, run: report.run, newest: report,
      last: batch ?? before?.last, rate: batch?.rate ?? before?.rate,
    });
    if (batch?.rate !== undefined) points.push({ job: report.job, ts: report.ts, rate: batch.rate });
    addTables(tables, report);
  }
  return {
    runs: [...runs.values()].reverse(),
    tables: [...tables.values()].sort((a, b) => (a.table < b.table ? -1 : Number(a.table > b.table))),
    points,
  };
}

/** The rows of a batch and how fast they came: a report counts those of the whole run. */
function batchOf(report, before) {
  if (report.state !== "running" || typeof report.rows !== "number") return undefined;
  const rows = report.rows - (typeof before?.rows === "number" ? before.rows : 0);
  const seconds = (report.ts - before?.ts) / 1000;
  return { batch: report.batch, rows, rate: seconds > 0 ? rows / seconds : undefined };
}

function addTables(tables, report) {
  for (const [table, rows] of Object.entries(isObject(report.tables) ? report.tables : {})) {
    const name = JSON.stringify([report.table, table]);
    if (tables.get(name)?.rows !== rows) {
      tables.set(name, { lake: report.table, table, rows, ts: report.ts });
    }
  }
}
