// Numbers and times for people.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const BYTES = ["B", "kB", "MB", "GB", "TB", "PB"];

export function count(value) {
  return Math.abs(value) < 1e6 ? WHOLE.format(value) : SHORT.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 10 ? String(Number(value.toFixed(value < 1 ? 2 : 1))) : count(value);
}

export function bytes(value) {
  let unit = 0;
  while (value >= 1000 && unit < BYTES.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${BYTES[unit]}`;
}

export function micros(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${Math.round(value)} µs`;
  if (value < 1e6) return `${three(value / 1000)} ms`;
  return `${three(value / 1e6)} s`;
}

const three = (value) => String(Number(value.toPrecision(3)));

export function ago(ts, now = Date.now()) {
  if (!ts) return "never";
  const seconds = Math.max(0, Math.round((now - ts) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

/** A length of time that was measured in milliseconds. */
export function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  return seconds < 60 ? `${Number(seconds.toFixed(1))} s` : `${Number((seconds / 60).toFixed(1))} min`;
}

export function clock(ts) {
  const when = new Date(ts);
  if (Number.isNaN(when.getTime())) return String(ts);
  const two = (value) => String(value).padStart(2, "0");
  const ms = String(when.getMilliseconds()).padStart(3, "0");
  return `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}.${ms}`;
}

export function moment(ts) {
  const when = new Date(ts);
  return Number.isNaN(when.getTime()) ? String(ts) : when.toISOString();
}
