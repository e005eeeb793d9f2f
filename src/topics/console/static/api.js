// The server: questions, orders, and asking again every while.
import { byId } from "./dom.js";

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";
const PATIENCE_MS = { GET: 15_000, POST: 60_000 }; // a redrive may take its time
const SCOPES = new Set(meta("scopes").split(" "));

export const may = (...scopes) => scopes.every((scope) => SCOPES.has(scope));

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function get(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return ask(query ? `${path}?${query}` : path, { method: "GET" });
}

export function post(path, body) {
  return ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Topics-CSRF": meta("csrf") },
    body: JSON.stringify(body),
  });
}

async function ask(path, options) {
  const [response, text] = await reach(path, options);
  if (response.status === 401) {
    location.assign(`/console/login?next=${encodeURIComponent(location.pathname)}`);
  }
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    // a proxy may answer in its own words
  }
  if (!response.ok) {
    const error = body.error ?? {};
    throw new Refused(response.status, error.code ?? "", error.message ?? response.statusText);
  }
  return body;
}

/** Fetch; whatever keeps an answer away, a network or a server that hangs, is said in our words. */
async function reach(path, options) {
  const signal = AbortSignal.timeout(PATIENCE_MS[options.method]);
  try {
    const response = await fetch(path, {
      credentials: "same-origin", cache: "no-store", signal, ...options,
    });
    return [response, await response.text()];
  } catch {
    throw new Error("The server does not answer. This page goes on by itself when it does.");
  }
}

/** Call `step` now and then every while, as long as somebody looks; return how to ask at once. */
export function keepAsking(step, everyMs) {
  let timer = 0;
  let running = false;
  let again = false;
  async function run() {
    clearTimeout(timer);
    if (running) {
      again = true;
      return;
    }
    running = true;
    do {
      again = false;
      try {
        await step();
        showPulse("live", "live");
        showProblem("");
      } catch (error) {
        showPulse("lost", "no answer");
        showProblem(error.message);
      }
    } while (again);
    running = false;
    if (!document.hidden) timer = setTimeout(run, everyMs);
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) run();
  });
  run();
  return run;
}

function showPulse(state, text) {
  const pulse = byId("pulse");
  pulse.dataset.state = state;
  if (pulse.textContent !== text) pulse.textContent = text;
}

function showProblem(text) {
  const problem = byId("problem");
  if (problem.textContent !== text) problem.textContent = text;
  problem.hidden = text === "";
}

/** Say how something went that was asked for by hand; it stays until the next. */
export function showOutcome(text, kind = "done") {
  const outcome = byId("outcome");
  outcome.hidden = false;
  outcome.className = kind;
  outcome.textContent = text;
}

/** Tell of each change of the filter field, and keep the form from leaving the page. */
export function onFilter(call) {
  byId("search").addEventListener("submit", (event) => event.preventDefault());
  byId("filter").addEventListener("input", call);
}

export function showCount(shown, matching) {
  const text = shown < matching ? `the first ${shown} of ${matching}` : `${matching}`;
  const output = byId("shown");
  if (output.textContent !== text) output.textContent = text;
}
