// A JSON value as text that folds. Hostile values are shown, never run.
import { el } from "./dom.js";

const LONG = 2000;
const MANY = 200;
const OPEN_SIZE = 24;

class Exact {
  constructor(source) {
    this.source = source;
  }
}

/** Parse JSON; a number that a double cannot hold keeps its digits. */
export function parseExact(text) {
  return JSON.parse(text, (_, value, context) => {
    const source = context?.source;
    const differs = typeof value === "number" && source !== undefined && String(value) !== source;
    return differs ? new Exact(source) : value;
  });
}

/** A number as it was sent, for what needs no digits. */
export const plainNumber = (value) => (value instanceof Exact ? Number(value.source) : value);

export function jsonView(value, depth = 0) {
  if (value instanceof Exact) return el("span", { class: "json-number" }, value.source);
  if (value === null || typeof value !== "object") return leaf(value);
  return branch(value, depth);
}

function leaf(value) {
  const kind = value === null ? "null" : typeof value;
  const text = JSON.stringify(value);
  if (text.length <= LONG) return el("span", { class: `json-${kind}` }, text);
  const shown = el("span", { class: `json-${kind}` }, text.slice(0, LONG));
  const more = el("button", { type: "button", class: "small", click: () => {
    shown.textContent = text;
    more.remove();
  } }, `${text.length - LONG} more`);
  return el("span", {}, shown, " ", more);
}

function branch(value, depth) {
  const isList = Array.isArray(value);
  const keys = Object.keys(value);
  const [start, end] = isList ? ["[", "]"] : ["{", "}"];
  if (keys.length === 0) return el("span", { class: "json-null" }, start + end);
  const folded = el("details", { class: "json", open: depth === 0 && keys.length <= OPEN_SIZE });
  const size = `${keys.length} ${isList ? "items" : "keys"}`;
  folded.append(el("summary", {}, `${start} ${preview(value, keys, isList)} ${end} `,
    el("span", { class: "quiet-text" }, size)));
  const fill = () => {
    if (!folded.open || folded.children.length > 1) return;
    folded.append(members(value, keys, depth, isList, 0));
  };
  folded.addEventListener("toggle", fill);
  fill();
  return folded;
}

function members(value, keys, depth, isList, from) {
  const list = el("ul", {});
  for (const key of keys.slice(from, from + MANY)) {
    const name = el("span", { class: isList ? "json-null" : "json-key" },
      isList ? key : JSON.stringify(key));
    list.append(el("li", {}, name, ": ", jsonView(value[key], depth + 1)));
  }
  const left = keys.length - from - MANY;
  if (left > 0) {
    const item = el("li", {}, el("button", { type: "button", class: "small", click: () => {
      list.append(...members(value, keys, depth, isList, from + MANY).children);
      item.remove();
    } }, `${left} more`));
    list.append(item);
  }
  return list;
}

function preview(value, keys, isList) {
  const parts = keys.slice(0, 4).map((key) => {
    const inner = value[key];
    const isBranch = inner !== null && typeof inner === "object" && !(inner instanceof Exact);
    const text = isBranch ? "…" : inner instanceof Exact ? inner.source : JSON.stringify(inner);
    const short = text.length > 24 ? `${text.slice(0, 24)}…` : text;
    return isList ? short : `${key}: ${short}`;
  });
  return parts.join(", ") + (keys.length > 4 ? ", …" : "");
}
