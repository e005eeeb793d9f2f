// Elements and text. Nothing here, nor anywhere else in the console, takes a string for markup.

/** Make an element; attributes that are null or false are left out, functions listen. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Show rows in a table; what has the focus keeps it, because its row is found again by its key. */
export function showRows(table, rows, { key, cells }) {
  const body = table.tBodies[0];
  const wide = [...table.tHead.rows[0].cells].map((title) => title.classList.contains("wide"));
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const kept = rows.map((value) => {
    const name = key(value);
    const row = old.get(name) ?? el("tr", { "data-key": name });
    old.delete(name);
    updateCells(row, cells(value), wide);
    return row;
  });
  for (const row of old.values()) row.remove();
  kept.forEach((row, place) => {
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null);
  });
}

function updateCells(row, cells, wide) {
  cells.forEach((cell, place) => {
    if (wide[place]) cell.classList.add("wide"); // as its title
    const given = row.cells[place];
    if (!given) row.append(cell);
    else if (!given.isEqualNode(cell) && !given.contains(document.activeElement)) {
      given.replaceWith(cell);
    }
  });
}

export const cell = (content, attributes = {}) => el("td", attributes, content);
export const head = (content) => el("th", { scope: "row" }, content);
export const number = (text) => el("td", { class: "number" }, text);

export function topicLink(name) {
  return el("a", { href: `/console/topics/${encodeURIComponent(name)}` }, name);
}

/** Show a list of figures with their names. */
export function showTiles(list, tiles) {
  const fresh = tiles.map(([name, value, kind]) =>
    el("div", { class: kind ?? null }, el("dt", {}, name), el("dd", {}, value)),
  );
  fresh.forEach((tile, place) => {
    const given = list.children[place];
    if (!given) list.append(tile);
    else if (!given.isEqualNode(tile)) given.replaceWith(tile);
  });
}

export function badge(text, kind = "") {
  return el("span", { class: "badge", "data-kind": kind || null }, text);
}

/** Parts of a whole, each [value, class]; without a label the text beside it says the same. */
export function stackedBar(parts, whole, label) {
  const named = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  const bar = el("div", { class: "stack", ...named });
  for (const [value, kind] of parts) {
    if (value <= 0 || whole <= 0) continue;
    const part = el("span", { class: kind });
    part.style.inlineSize = `${Math.max(0.4, (100 * value) / whole)}%`;
    bar.append(part);
  }
  return bar;
}

/** A line without axes. */
export function sparkline(values, points = 60) {
  const [width, height] = [120, 24];
  const top = Math.max(...values, 0);
  const drawing = svg("svg", {
    class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true",
    width, height, preserveAspectRatio: "none",
  });
  if (values.length > 1 && top > 0) {
    const x = (place) => width - ((values.length - 1 - place) * width) / (points - 1);
    const y = (value) => height - 2 - (value / top) * (height - 4);
    const line = values.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`);
    drawing.append(svg("polyline", { points: line.join(" ") }));
  }
  return drawing;
}
