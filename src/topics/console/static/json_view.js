// A JSON value as text that folds. Hostile values are shown, never run.
import { el } from "./dom.js";

const LONG = 2000;
const MANY = 200;
const PREVIEW_KEYS = 8;
const PREVIEW_CHARACTERS = 160;

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

/** `open`: so many levels are unfolded from the start. */
export function jsonView(value, open = 0) {
  if (value instanceof Exact) return el("span", { class: "json-number" }, value.source);
  if (value === null || typeof value !== "object") return leaf(value);
  return branch(value, open);
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

function branch(value, open) {
  const isList = Array.isArray(value);
  const keys = Object.keys(value);
  const [start, end] = isList ? ["[", "]"] : ["{", "}"];
  if (keys.length === 0) return el("span", { class: "json-null" }, start + end);
  const folded = el("details", { class: "json", open: open > 0 });
  const size = `${keys.length} ${isList ? "item" : "key"}${keys.length === 1 ? "" : "s"}`;
  folded.append(el("summary", {}, `${start} ${preview(value, keys, isList)} ${end} `,
    el("span", { class: "quiet-text" }, size)));
  const fill = () => {
    if (!folded.open || folded.children.length > 1) return;
    folded.append(members(value, keys, open, isList, 0));
  };
  folded.addEventListener("toggle", fill);
  fill();
  return folded;
}

function members(value, keys, open, isList, from) {
  const list = el("ul", {});
  for (const key of keys.slice(from, from + MANY)) {
    const name = el("span", { class: isList ? "json-null" : "json-key" },
      isList ? key : JSON.stringify(key));
    list.append(el("li", {}, name, ": ", jsonView(value[key], open - 1)));
  }
  const left = keys.length - from - MANY;
  if (left > 0) {
    const item = el("li", {}, el("button", { type: "button", class: "small", click: () => {
      list.append(...members(value, keys, open, isList, from + MANY).children);
      item.remove();
    } }, `${left} more`));
    list.append(item);
  }
  return list;
}

function preview(value, keys, isList) {
  let text = "";
  for (const key of keys.slice(0, PREVIEW_KEYS)) {
    const part = isList ? short(value[key]) : `${key}: ${short(value[key])}`;
    if (text && text.length + part.length > PREVIEW_CHARACTERS) return `${text}, …`;
    text += text ? `, ${part}` : part;
  }
  return keys.length > PREVIEW_KEYS ? `${text}, …` : text;
}

function short(value) {
  if (value instanceof Exact) return value.source;
  if (value !== null && typeof value === "object") return Array.isArray(value) ? "[…]" : "{…}";
  const text = JSON.stringify(value);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
