/* Curves: which lines share a chart, and how a chart is drawn, hovered, zoomed and smoothed. */

const SPEED = ["updates_per_second", "tokens_per_second", "samples_per_second", "steps_per_second", "runtime"];
const LAST = ["learning_rate", "grad_norm", "num_input_tokens_seen", "nonfinite"];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [14, 5], [5, 2, 1, 2, 1, 2]];
const NOT_NOISY = ["learning_rate", "num_input_tokens_seen"];
const MIN_POINTS_TO_SMOOTH = 12;
const WHOLE_STEPS = Array.from({ length: 30 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3));

const view = { x: "step", smoothing: 0, logs: new Set(), hidden: new Set(), zoom: null, samples: {}, open: new Set() };

/** The charts of some runs: [{metric, title, lines}], the loss first. */
function planCharts(runs) {
  const byMetric = new Map();
  const there = new Set(runs.flatMap((run) => run.curves.map((curve) => curve.split)));
  const splits = [...new Set(["train", "eval", ...(there.has("test") ? ["test"] : []), ...there])];
  runs.forEach((run, index) => run.curves.forEach((curve) => {
    if (!byMetric.has(curve.metric)) byMetric.set(curve.metric, []);
    const split = splits.indexOf(curve.split);
    byMetric.get(curve.metric).push({
      run, curve, order: split,
      label: runs.length > 1 ? `${run.label} · ${curve.split}` : curve.split,
      color: runs.length > 1 ? index : split,
      dash: runs.length > 1 ? DASHES[split % DASHES.length] : [],
    });
  }));
  const rank = (metric) => metric === "loss" ? -1 : SPEED.includes(metric) ? 9 + SPEED.indexOf(metric) : LAST.indexOf(metric) + 1;
  return [...byMetric]
    .filter(([, lines]) => lines.some((line) => line.curve.steps.length > 1 || line.curve.not_finite))
    .filter(([metric, lines]) => metric === "loss" || !lines.every((line) => isConstant(line.curve)))
    .map(([metric, lines]) => ({
      metric, title: titleOf(metric), isSpeed: SPEED.includes(metric),
      lines: lines.sort((a, b) => a.order - b.order),
    }))
    .sort((a, b) => rank(a.metric) - rank(b.metric));
}

/** Whether a curve is a level line: its value is among the results, and a chart would say no more. */
const isConstant = (curve) => !curve.num_not_finite && curve.values.every((value) => value === curve.values[0]);

/** What has the same value all along, as text; empty if nothing has. */
function describeConstants(runs) {
  const curves = runs.length === 1 ? runs[0].curves : [];
  return curves.filter((curve) => curve.values.length > 1 && curve.metric !== "loss" && !SPEED.includes(curve.metric) && isConstant(curve))
    .map((curve) => `${curve.split} ${titleOf(curve.metric).toLowerCase()} ${formatNumber(curve.values[0])}`).join(", ");
}

/** Steps of a run on the axis that is chosen; strictly rising, as the plot needs them. */
function positions(run, steps) {
  if (view.x === "step") return steps;
  const column = run.moments[view.x === "time" ? 1 : 2];
  let last = -Infinity;
  return steps.map((step) => (last = Math.max(interpolate(run.moments[0], column, step), last + 1e-6)));
}

const hasAxis = (run, axis) => axis === "step" || (run.moments[axis === "time" ? 1 : 2] || []).some((v) => v !== null);
const formatX = (x) => view.x === "step" ? formatTick(x) : view.x === "time" ? formatClock(x) : formatNumber(x, 4);

/** The position of the cursor on the axis, as text. */
function describeX(x) {
  if (view.x === "time") return `${formatDuration(x)} into the run`;
  return view.x === "epoch" ? `epoch ${formatNumber(x, 4)}` : `step ${formatNumber(Math.round(x))}`;
}

/** The points of a line, and smoothed points if wanted: only of training, as an evaluation is a mean already. */
function pointsOf(line) {
  const { split, metric, steps, values, means } = line.curve;
  const isNoisy = split === "train" && !NOT_NOISY.includes(metric) && values.length >= MIN_POINTS_TO_SMOOTH;
  const isSmooth = view.smoothing > 0 && isNoisy;
  return { xs: positions(line.run, steps), values, smoothed: isSmooth ? smooth(means || values, view.smoothing) : null };
}

/** A figure with its legend and its plot. */
function drawChart(plan) {
  const id = plan.metric;
  const lines = plan.lines.map((line) => ({ ...line, ...pointsOf(line), key: `${id}|${line.label}` }));
  const canLog = lines.every((line) => line.values.every((value) => value > 0));
  const legend = make("div", { class: "legend" }, lines.map((line) => legendItem(line)));
  const holder = make("div", { class: "plot", role: "img", "aria-label": describeChart(plan, lines) });
  const figure = make("figure", { class: `chart${id === "loss" ? " wide" : ""}`, "data-metric": id },
    make("figcaption", null,
      make("h3", null, plan.title),
      canLog && make("button", {
        type: "button", class: "small", "aria-pressed": String(view.logs.has(id)), title: "Logarithmic axis",
        onclick: () => { toggle(view.logs, id); redrawCharts(); },
      }, "log")),
    legend, holder, notFinite(lines));
  figure.draw = () => plot(holder, id, lines, canLog && view.logs.has(id));
  return figure;
}

function legendItem(line) {
  line.valueNode = make("span", { class: "value" }, formatNumber(line.values[line.values.length - 1]));
  return make("button", {
    type: "button", class: "line", "aria-pressed": String(!view.hidden.has(line.key)), title: "Show or hide",
    onclick: () => { toggle(view.hidden, line.key); redrawCharts(); },
  }, make("i", { style: { background: swatch(line) } }),
  make("span", { class: "name" }, line.label), line.valueNode);
}

/** A line as it is drawn, for the legend. */
function swatch(line) {
  const drawn = color(line.color);
  if (!line.dash.length) return drawn;
  let end = 0;
  const stops = line.dash.map((length, i) => `${i % 2 ? "transparent" : drawn} ${end}px ${end += length}px`);
  return `repeating-linear-gradient(90deg, ${stops.join(", ")})`;
}

function describeChart(plan, lines) {
  const said = lines.map((l) => `${l.label}: ${l.values.length} points, last ${formatNumber(l.values[l.values.length - 1])}`);
  return `${plan.title}. ${said.join("; ")}`;
}

function notFinite(lines) {
  const bad = lines.filter((line) => line.curve.num_not_finite);
  return bad.map((line) => make("p", { class: "alarm" },
    `${line.label}: ${line.curve.num_not_finite} values were not finite, first at step ${line.curve.not_finite[0]}.`));
}

const color = (index) => css(`--c${index % 8}`);

/** Put the plot into its holder. */
function plot(holder, id, lines, isLog) {
  const shown = lines.filter((line) => !view.hidden.has(line.key) && line.xs.length);
  const series = [{}], tables = [];
  for (const line of shown) {
    const stroke = color(line.color);
    if (line.smoothed) {
      tables.push([line.xs, line.values]);
      series.push({ stroke, alpha: 0.22, width: 1, points: { show: false }, spanGaps: true });
    }
    tables.push([line.xs, line.smoothed || line.values]);
    series.push({ stroke, width: 1.75, dash: line.dash, spanGaps: true, line, points: pointStyle(line, stroke) });
  }
  if (!tables.length) return null;
  const tip = make("div", { class: "tip", hidden: true });
  const chart = new uPlot({
    ...frame(holder, id === "loss" ? 300 : 210),
    scales: { x: { time: false, range: rangeOf }, y: isLog ? { distr: 3 } : { range: paddedRange } },
    axes: [axisX(), axis({ size: widthOfTicks, space: 34, values: (u, ticks) => ticks.map(formatTick) })],
    series,
    hooks: { setCursor: [(u) => showValues(u, lines, tip)], setSelect: [zoomToSelection] },
  }, uPlot.join(tables), holder);
  chart.over.append(tip);
  return chart;
}

/** Few measurements are dots on a line; many are a line. */
function pointStyle(line, stroke) {
  return { show: line.xs.length <= 40, size: line.xs.length <= 2 ? 8 : 5, stroke, fill: stroke };
}

function frame(holder, height) {
  return {
    width: Math.max(holder.clientWidth, 200), height, legend: { show: false }, padding: [8, 20, 0, 0],
    cursor: {
      y: false, drag: { x: true, y: false, setScale: false }, points: { size: 7 },
      sync: { key: "report", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      bind: { dblclick: () => () => { view.zoom = null; applyZoom(); return null; } },
      dataIdx: (u, index, hovered) => nearestPoint(u.data[index], hovered),
    },
  };
}

/** The nearest point of this series: the lines of one chart may have different steps. */
function nearestPoint(values, hovered) {
  for (let away = 0; away < values.length; away++) {
    if (values[hovered - away] != null) return hovered - away;
    if (values[hovered + away] != null) return hovered + away;
  }
  return null;
}

function axis(options) {
  return {
    stroke: css("--quiet"), font: `11px ${css("--font")}`, gap: 6, space: 56, size: 30,
    grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, ...options,
  };
}

const AXIS_NAMES = { step: "step (updates)", time: "time of training", epoch: "epoch" };
const axisX = () => axis({
  values: (u, ticks) => ticks.map(formatX), ...(view.x === "step" && { incrs: WHOLE_STEPS }),
  label: AXIS_NAMES[view.x], labelFont: `11px ${css("--font")}`, labelSize: 16, labelGap: 0,
});

function widthOfTicks(u, labels) {
  return 18 + 6.6 * Math.max(2, ...(labels || []).map((label) => label.length));
}

function rangeOf(u, low, high) {
  if (view.zoom) return view.zoom;
  return low === high ? [low - 1, high + 1] : [low, high];
}

function paddedRange(u, low, high) {
  if (low === null || low === undefined) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

/** The values under the cursor: in the legend of every chart, and beside the cursor in this one. */
function showValues(u, lines, tip) {
  const isOver = u.cursor.left >= 0 && u.cursor.idx !== null;
  const x = isOver ? u.data[0][u.cursor.idx] : null;
  const rows = [];
  for (const line of lines) {
    if (!line.values.length) continue;
    const at = isOver ? nearest(line.xs, x) : line.values.length - 1;
    line.valueNode.textContent = formatNumber(line.values[at]);
    if (isOver && !view.hidden.has(line.key)) rows.push({ line, at });
  }
  tip.hidden = !isOver || !u.over.matches(":hover");
  if (tip.hidden) return;
  tip.replaceChildren(make("div", { class: "at" }, describeX(x)), ...rows.map(({ line, at }) => tipRow(line, at, x)));
  placeTip(u, tip);
}

/** Beside the cursor, on the side that has room. */
function placeTip(u, tip) {
  const isLeft = u.cursor.left + tip.offsetWidth + 24 > u.over.clientWidth;
  tip.style.left = isLeft ? "auto" : `${u.cursor.left + 12}px`;
  tip.style.right = isLeft ? `${u.over.clientWidth - u.cursor.left + 12}px` : "auto";
}

function tipRow(line, at, x) {
  const smoothed = line.smoothed && ` (${formatNumber(line.smoothed[at], 4)})`;
  const elsewhere = line.xs[at] !== x && make("span", { class: "quiet" }, ` @ ${formatNumber(line.curve.steps[at])}`);
  return make("div", { class: "row" }, make("i", { style: { background: color(line.color) } }),
    make("span", { class: "name" }, line.label, elsewhere), make("b", null, formatNumber(line.values[at]) + (smoothed || "")));
}

function zoomToSelection(u) {
  if (u.select.width < 6) return;
  view.zoom = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
  applyZoom();
}

/** All charts show the same stretch of the run. */
function applyZoom() {
  for (const chart of charts) {
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const xs = chart.data[0];
    chart.setScale("x", view.zoom ? { min: view.zoom[0], max: view.zoom[1] } : { min: xs[0], max: xs[xs.length - 1] });
  }
}
