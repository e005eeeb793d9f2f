// Lines over time, drawn by uPlot in the colours of the page.
import { el } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 180;
const STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];

/** Steps of an axis that counts things there is no half of. */
export const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();

/** The colour a class has now: a canvas knows no custom properties. */
function colour(name) {
  const probe = el("span", { class: name, hidden: true });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export class TimeChart {
  /** `series`: [{label, kind}], kind a class with a colour; `format` of the values, `steps` of their axis. */
  constructor(figure, series, format, steps = undefined) {
    this.steps = steps;
    this.plot = figure.querySelector(".plot");
    this.series = series;
    this.format = format;
    this.data = null;
    this.legend = el("ul", { class: "legend" });
    figure.querySelector("figcaption").append(this.legend);
    this.title = figure.querySelector("h2").textContent;
    this.plot.setAttribute("role", "img");
    this.empty = el("p", { class: "empty" }, "The first point comes in a few seconds.");
    this.plot.append(this.empty);
    new ResizeObserver(() => this.resize()).observe(this.plot);
    document.addEventListener("themechange", () => this.redraw());
  }

  /** `ts` in milliseconds; a column that is shorter than `ts` belongs to its end. */
  update(ts, columns) {
    const padded = columns.map((values) => [
      ...Array(Math.max(0, ts.length - values.length)).fill(null),
      ...values.slice(-ts.length || values.length),
    ]);
    this.data = [ts.map((at) => at / 1000), ...padded];
    this.showLegend();
    if (ts.length === 0) return;
    if (this.uplot) this.uplot.setData(this.data);
    else this.draw();
  }

  showLegend() {
    const newest = this.series.map((one, place) => {
      const value = this.data[place + 1].findLast((one) => one !== undefined);
      const shown = value === null || value === undefined ? "–" : this.format(value);
      return [one, shown];
    });
    const items = newest.map(([{ label, kind }, shown]) =>
      el("li", {}, el("span", { class: `mark ${kind}`, "aria-hidden": "true" }), `${label} `,
        el("b", {}, shown)),
    );
    this.legend.replaceChildren(...items);
    const spoken = newest.map(([{ label }, shown]) => `${label} ${shown}`).join(", ");
    this.plot.setAttribute("aria-label", `${this.title}: ${spoken}`);
  }

  draw() {
    const axis = { stroke: colour("ink-quiet"), grid: { stroke: colour("line"), width: 1 },
      ticks: { stroke: colour("line"), width: 1 } };
    this.empty.remove();
    this.uplot = new window.uPlot(
      {
        width: this.plot.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { setScale: false, x: false, y: false } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) * 1.1 || 1] } },
        axes: [
          { ...axis, size: 30, space: 80, incrs: STEPS_S, values: (_, ticks) => times(ticks) },
          { ...axis, size: 64, incrs: this.steps, values: (_, ticks) => ticks.map((value) => this.format(value)) },
        ],
        series: [
          {},
          ...this.series.map(({ label, kind }) => ({
            label, stroke: colour(kind), width: 1.5, points: { size: 4 },
          })),
        ],
      },
      this.data,
      this.plot,
    );
  }

  resize() {
    const width = this.plot.clientWidth;
    if (this.uplot && width > 0 && width !== this.uplot.width) {
      this.uplot.setSize({ width, height: HEIGHT });
    }
  }

  redraw() {
    if (!this.uplot) return;
    this.uplot.destroy();
    this.draw();
  }
}

/** Write times alike: with seconds if one of them has any. */
function times(ticks) {
  const hasSeconds = ticks.some((at) => at % 60 !== 0);
  return ticks.map((at) => clock(at * 1000).slice(0, hasSeconds ? 8 : 5));
}
