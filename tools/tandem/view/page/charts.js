// A chart: one metric of several runs, one line each. The pointer or the arrow keys move a cursor
// that shows the step and every run's value.
import {make, makeSvg, show, tip} from "./dom.js";

const kWidth = 300, kHeight = 100;  // of the plot, stretched to its box
const kMaxPoints = 600;             // that a line draws; a screen shows no more
const kDots = 25;                   // lines of fewer points mark each

function smoothed(values, weight) {
  let last = null;
  return values.map((y) => last = last === null ? y : weight * last + (1 - weight) * y);
}

// Of each part of a long line, its lowest and its highest point, so that spikes stay visible.
function thinned(points) {
  if (points.length <= kMaxPoints) return points;
  const size = Math.ceil(points.length / (kMaxPoints / 2));
  const out = [];
  for (let at = 0; at < points.length; at += size) {
    const part = points.slice(at, at + size);
    let low = 0, high = 0;
    part.forEach(([, y], i) => {
      if (y < part[low][1]) low = i;
      if (y > part[high][1]) high = i;
    });
    out.push(part[Math.min(low, high)]);
    if (low !== high) out.push(part[Math.max(low, high)]);
  }
  return out;
}

// Index of the step nearest to `wanted`; `steps` ascend.
function nearest(steps, wanted) {
  let low = 0, high = steps.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - steps[low - 1] <= steps[low] - wanted ? low - 1 : low;
}

const extent = (lists) => {
  let low = Infinity, high = -Infinity;
  for (const list of lists) {
    for (const value of list) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
};

export class Chart {
  // `spec`: {metric, title, low, high}; low and high name the metrics of a band around a line.
  // `onpick(step)` is called when a step is chosen.
  constructor(spec, onpick) {
    this.spec = spec;
    this.cursor = null;  // a step
    this.latest = make("span", {class: "muted"});
    this.svg = makeSvg("svg", {viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: "none", tabindex: 0, role: "img"});
    this.lines = makeSvg("g");
    this.mark = makeSvg("g");
    this.svg.append(this.lines, this.mark);
    this.scale = make("div", {class: "scale"});
    this.axis = make("div", {class: "axis"});
    this.element = make("article", {class: "chart", "data-metric": spec.metric},
      make("h3", {}, make("span", {}, spec.title || spec.metric), this.latest),
      ...(spec.title ? [make("div", {class: "muted name"}, spec.metric)] : []),
      make("div", {class: "plot"}, this.scale, this.svg, make("span"), this.axis));
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.moveTo(null));
    this.svg.addEventListener("blur", () => this.moveTo(null));
    this.svg.addEventListener("click", () => { if (this.cursor !== null) onpick(this.cursor); });
    this.svg.addEventListener("keydown", (event) => this.press(event, onpick));
  }

  update(runs, {smoothing, logarithmic}) {
    this.shown = runs.filter((run) => run.series.has(this.spec.metric))
      .map((run) => ({run, ...run.series.get(this.spec.metric)}));
    this.steps = [...new Set(this.shown.flatMap((line) => line.steps))].sort((a, b) => a - b);
    const bands = this.spec.low && this.shown.length === 1 ? this.bandOf(this.shown[0].run) : null;
    const all = [...this.shown.map((line) => line.values), ...(bands ? [bands.low.values, bands.high.values] : [])];
    const [least, most] = extent(all);
    const scale = logarithmic && least > 0 ? Math.log10 : (y) => y;
    const x0 = this.steps[0], x1 = this.steps[this.steps.length - 1], y0 = scale(least), y1 = scale(most);
    this.px = (x) => x1 > x0 ? (x - x0) / (x1 - x0) * kWidth : kWidth / 2;
    this.py = (y) => y1 > y0 ? 96 - (scale(y) - y0) / (y1 - y0) * 92 : 50;
    const drawn = [];
    if (bands) drawn.push(this.bandPath(bands, this.shown[0].run.colour));
    for (const line of this.shown) {
      if (smoothing > 0) drawn.push(this.linePath(line, line.values, "raw"));
      drawn.push(this.linePath(line, smoothing > 0 ? smoothed(line.values, smoothing) : line.values, ""));
      if (line.steps.length <= kDots) drawn.push(this.dotsPath(line, line.steps.map((x, i) => [x, line.values[i]])));
    }
    this.lines.replaceChildren(...drawn);
    // A line that never moves has one label, beside it.
    const labels = y1 > y0 ? [show(most), show(least)] : ["", show(least), ""];
    this.scale.replaceChildren(...labels.map((text) => make("span", {}, text)));
    this.axis.replaceChildren(make("span", {}, `step ${x0}`), make("span", {}, String(x1)));
    const last = this.shown.map(({run, values}) => [run, values[values.length - 1]]);
    this.latest.textContent = last.length === 1 ? show(last[0][1]) : "";
    this.svg.setAttribute("aria-label", `${this.spec.metric}; latest: ` +
      last.map(([run, value]) => `${run.name} ${show(value)}`).join(", "));
    if (this.cursor !== null) this.drawCursor();
  }

  bandOf(run) {
    const low = run.series.get(this.spec.low), high = run.series.get(this.spec.high);
    return low && high ? {low, high} : null;
  }

  path(points) {
    return points.map(([x, y], i) => `${i ? "L" : "M"}${this.px(x).toFixed(2)} ${this.py(y).toFixed(2)}`).join("");
  }

  linePath(line, values, kind) {
    const points = thinned(line.steps.map((x, i) => [x, values[i]]));
    return makeSvg("path", {d: this.path(points), class: kind, stroke: line.run.colour, "stroke-dasharray": line.run.dash});
  }

  bandPath({low, high}, colour) {
    const there = thinned(high.steps.map((x, i) => [x, high.values[i]]));
    const back = thinned(low.steps.map((x, i) => [x, low.values[i]])).reverse();
    return makeSvg("path", {d: this.path(there) + this.path(back).replace("M", "L") + "Z", class: "band", fill: colour});
  }

  // Round caps on lines without length are dots, whatever the box's proportions.
  dotsPath(line, points) {
    const d = points.map(([x, y]) => `M${this.px(x).toFixed(2)} ${this.py(y).toFixed(2)}h0`).join("");
    return makeSvg("path", {d, class: "dots", stroke: line.run.colour});
  }

  point(event) {
    if (this.steps.length === 0) return;
    const box = this.svg.getBoundingClientRect();
    const x0 = this.steps[0], x1 = this.steps[this.steps.length - 1];
    const wanted = x0 + (event.clientX - box.left) / box.width * (x1 - x0);
    this.moveTo(this.steps[nearest(this.steps, wanted)], {x: event.clientX, y: event.clientY});
  }

  press(event, onpick) {
    if (this.steps.length === 0) return;
    if (event.key === "Enter" && this.cursor !== null) onpick(this.cursor);
    if (event.key === "Escape") this.moveTo(null);
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    const last = this.steps.length - 1;
    const at = this.cursor === null ? last : nearest(this.steps, this.cursor) + (event.key === "ArrowLeft" ? -1 : 1);
    this.moveTo(this.steps[Math.max(0, Math.min(at, last))]);
  }

  // Without a point, the text appears beside the cursor.
  moveTo(step, point = null) {
    this.cursor = step;
    this.at = point;
    this.drawCursor();
  }

  drawCursor() {
    if (this.cursor === null) {
      this.mark.replaceChildren();
      tip(null);
      return;
    }
    const x = this.px(this.cursor).toFixed(2);
    const values = this.shown.map((line) => {
      const i = nearest(line.steps, this.cursor);
      return {line, step: line.steps[i], value: line.values[i]};
    });
    this.mark.replaceChildren(makeSvg("path", {d: `M${x} 0V${kHeight}`, class: "cursor"}),
      ...values.map(({line, step, value}) => this.dotsPath(line, [[step, value]])));
    const box = this.svg.getBoundingClientRect();
    const point = this.at || {x: box.left + x / kWidth * box.width, y: box.top};
    tip(point, make("div", {}, `step ${this.cursor}`), ...values.map(({line, step, value}) => make("div", {},
      make("span", {class: "swatch", style: `background:${line.run.colour}`}),
      `${line.run.name}  ${show(value)}${step === this.cursor ? "" : ` (step ${step})`}`)));
  }
}
