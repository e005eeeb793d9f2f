// The routers as a graph from left to right, and as a table.
import { get, keepAsking } from "./api.js";
import { byId, cell, el, head, number, showRows, svg, topicLink } from "./dom.js";
import * as format from "./format.js";

const [BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, EDGE] = [180, 34, 110, 22, 12];
let drawn = "";

keepAsking(async () => {
  const { nodes, routers } = await get("/console/data/routers");
  const isEmpty = routers.length === 0;
  byId("graph").hidden = isEmpty;
  byId("routers").parentElement.hidden = isEmpty;
  showEmpty(isEmpty);
  const shape = JSON.stringify([nodes, routers.map(({ router, source, dest }) => [router, source, dest])]);
  if (shape !== drawn) byId("graph").replaceChildren(graph(nodes, routers));
  drawn = shape;
  showBehind(routers);
  showRows(byId("routers"), routers, {
    key: ({ router }) => router,
    cells: (one) => [
      head(one.router),
      cell(topicLink(one.source)),
      cell(topicLink(one.dest)),
      cell(one.filter === null ? "all" : Array.isArray(one.filter) ? one.filter.join(" ") : one.filter),
      cell(one.guarantee.replaceAll("_", " ")),
      number(format.count(one.forwarded_total)),
      number(format.count(one.lag)),
    ],
  });
}, 2000);

function graph(nodes, routers) {
  const x = (layer) => EDGE + layer * (BOX_WIDTH + GAP_X);
  const y = (row) => EDGE + row * (BOX_HEIGHT + GAP_Y);
  const places = new Map(nodes.map((node) => [node.topic, node]));
  const leadsBack = routers.some((one) => places.get(one.dest).layer <= places.get(one.source).layer);
  const width = x(Math.max(0, ...nodes.map(({ layer }) => layer))) + BOX_WIDTH + EDGE;
  const height = y(Math.max(0, ...nodes.map(({ row }) => row))) + BOX_HEIGHT + (leadsBack ? 4 : 1) * EDGE;
  const label = routers.map(({ source, dest }) => `${source} to ${dest}`).join(", ");
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  drawing.append(
    svg("title", {}, `Routers: ${label}`),
    svg("defs", {}, svg("marker", {
      id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto",
    }, svg("path", { d: "M0 0 8 4 0 8z", class: "arrow" }))),
  );
  for (const one of routers) {
    const [from, to] = [places.get(one.source), places.get(one.dest)];
    drawing.append(edge(one.router, x(from.layer), y(from.row), x(to.layer), y(to.row), height));
  }
  for (const { topic, layer, row } of nodes) {
    const short = topic.length > 24 ? `${topic.slice(0, 23)}…` : topic;
    drawing.append(svg("a", { href: `/console/topics/${encodeURIComponent(topic)}` },
      svg("title", {}, topic),
      svg("rect", { x: x(layer), y: y(row), width: BOX_WIDTH, height: BOX_HEIGHT, rx: 6 }),
      svg("text", { x: x(layer) + 10, y: y(row) + BOX_HEIGHT / 2 + 4.5 }, short)));
  }
  return drawing;
}

function edge(name, fromX, fromY, toX, toY, height) {
  const [x1, y1, x2, y2] = [fromX + BOX_WIDTH, fromY + BOX_HEIGHT / 2, toX, toY + BOX_HEIGHT / 2];
  const bend = x2 > x1 ? (x2 - x1) / 2 : GAP_X / 2;
  const low = height - EDGE; // an edge that leads back goes below everything
  const path = x2 > x1
    ? `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
    : `M${x1} ${y1}C${x1 + bend} ${low} ${x2 - bend} ${low} ${x2} ${y2}`;
  const [middleX, middleY] = [(x1 + x2) / 2, x2 > x1 ? (y1 + y2) / 2 - 5 : low - 8];
  return svg("g", { class: "edge", "data-router": name },
    svg("title", {}, name),
    svg("path", { d: path, "marker-end": "url(#arrow)" }),
    svg("text", { x: middleX, y: middleY, "text-anchor": "middle" }));
}

function showBehind(routers) {
  const lags = new Map(routers.map(({ router, lag }) => [router, lag]));
  for (const group of byId("graph").querySelectorAll("g.edge")) {
    const lag = lags.get(group.dataset.router) ?? 0;
    group.querySelector("text").textContent = lag ? `${format.count(lag)} behind` : "";
  }
}

function showEmpty(isEmpty) {
  const empty = byId("routers-empty");
  empty.hidden = !isEmpty;
  if (!isEmpty || empty.childElementCount) return;
  empty.append(
    el("p", {}, "There are no routers. One copies what is written to a topic into another:"),
    el("pre", {}, 'PUT /v0/routers/orders->audit\n{"source": "orders", "dest": "audit"}'),
  );
}
