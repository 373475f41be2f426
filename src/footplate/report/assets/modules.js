/* Modules over time: a map of colours with a row for each module, and the lines of those that are chosen. */

const MEASURES = {
  grad_norm: {
    title: "Gradient norm", short: "gradient norm",
    advice: "Before clipping. Rows that stay black get no gradient; a row far brighter than its neighbours is where large gradients come from.",
  },
  update_ratio: {
    title: "Update ratio", short: "update ratio", usual: 1e-3,
    advice: "How far an update moved the weights, measured by their size: about 0.001 is usual. Rows that stay near zero do not learn; rows that stay above 0.01 change so fast that training may become unstable.",
  },
  weight_norm: {
    title: "Weight norm", short: "weight norm",
    advice: "The size of the weights before each update. Rows that grow brighter without end may need weight decay or a lower learning rate.",
  },
};
// dark is small and bright is large, by day and by night, for all eyes (the colours of viridis)
const SCALE = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const ZERO = [0, 0, 0], NOT_FINITE = [230, 50, 20];
const MAX_LINES = 8, MIN_LABEL = 12, PAGE_ROWS = 10;
const moduleView = { run: null, measure: "grad_norm", chosen: [], cell: null };
view.logs.add("modules");

function modules(shown) {
  const runs = shown.runs.filter((run) => run.notes && run.notes.modules);
  if (!runs.length) return null;
  const run = runs.find(({ label }) => label === moduleView.run) || runs[0];
  const map = readMap(run.notes.modules, moduleView.measure);
  moduleView.chosen = moduleView.chosen.filter((name) => map.names.includes(name));
  return section("modules", "Modules over time", moduleControls(runs, run, shown.runs.length > 1),
    make("p", { class: "quiet" }, MEASURES[map.measure].advice), mapFigure(map),
    moduleView.chosen.length > 0 && drawChart(planLines(run, map)), moduleTable(run.notes.modules));
}

/** Build this part alone again: the other charts stay as they are. */
function redrawModules() {
  keepingFocus(() => {
    const ours = charts.filter((chart) => places.modules.contains(chart.root));
    ours.forEach((chart) => chart.destroy());
    charts = charts.filter((chart) => !ours.includes(chart));
    refresh("modules");
    for (const figure of places.modules.querySelectorAll("figure")) {
      const chart = figure.draw();
      if (chart) charts.push(chart);
    }
  });
}

function moduleControls(runs, run, isCompared) {
  const choose = (measure) => { moduleView.measure = measure; redrawModules(); };
  const choice = make("div", { class: "choice", role: "group", "aria-label": "What is shown" }, Object.entries(MEASURES).map(([measure, { short }]) => make("button", {
    type: "button", "aria-pressed": String(measure === moduleView.measure), "data-focus": `measure ${measure}`, onclick: () => choose(measure),
  }, short)));
  const select = isCompared && (runs.length === 1 ? make("b", null, run.label) : make("select", {
    "aria-label": "Run", "data-focus": "run of modules", onchange: (event) => { moduleView.run = event.target.value; redrawModules(); },
  }, runs.map(({ label }) => make("option", { value: label, selected: label === run.label }, label))));
  return make("div", { class: "controls" }, isCompared && make("span", { class: "quiet" }, "of the run"), select, choice);
}

// ---- the numbers ----

/** One kind of value of all modules and steps, with the range that the colours span. */
function readMap(table, measure) {
  const { names, steps } = table, columns = table[measure];
  const logs = [];
  let numZero = 0, numBad = 0, numMissing = 0;
  for (const column of columns) {
    for (const value of column) {
      if (typeof value === "string") numBad++;
      else if (value === null) numMissing++;
      else if (value === 0) numZero++;
      else logs.push(Math.log10(value));
    }
  }
  return { measure, names, steps, columns, table, numZero, numBad, numMissing, ...rangeOfLogs(Float64Array.from(logs).sort()) };
}

/** What the colours span: all values or, of many, all but the farthest in each hundred at both ends. */
function rangeOfLogs(sorted) {
  if (!sorted.length) return { low: 0, high: 1, isEmpty: true };
  const end = sorted.length - 1, cut = sorted.length > 200 ? 0.01 : 0;
  let [low, high] = [sorted[Math.round(end * cut)], sorted[Math.round(end * (1 - cut))]];
  const missing = 0.3 - (high - low);
  if (missing > 0) [low, high] = [low - missing / 2, high + missing / 2];
  return { low, high, isBelow: sorted[0] < low, isAbove: sorted[end] > high };
}

/** The colour of a value, as red, green and blue; null where there is no value. */
function shade(map, value) {
  if (value === null || value === undefined) return null;
  if (typeof value === "string") return NOT_FINITE;
  if (value === 0) return ZERO;
  const at = Math.min(1, Math.max(0, (Math.log10(value) - map.low) / (map.high - map.low))) * (SCALE.length - 1);
  const below = Math.min(Math.floor(at), SCALE.length - 2), share = at - below;
  return SCALE[below].map((part, i) => part + (SCALE[below + 1][i] - part) * share);
}

const rgb = (parts) => `rgb(${parts.map(Math.round).join(",")})`;

function describeModuleValue(value) {
  if (value === null || value === undefined) return "no value";
  return typeof value === "string" ? `not finite (${value})` : formatNumber(value, 3);
}

// ---- the map ----

function mapFigure(map) {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const mark = make("div", { class: "map-mark", hidden: true });
  const readout = make("output", { class: "map-readout" }, "");
  const holder = make("div", {
    class: "map", tabindex: 0, role: "application", "aria-roledescription": "map of colours", "data-focus": "map of modules", "aria-label": describeMap(map),
  }, canvas, mark);
  const figure = make("figure", { class: "chart wide", "data-metric": "module-map" },
    make("figcaption", null, make("h3", null, `${MEASURES[map.measure].title} of each module`), mapLegend(map)),
    readout, holder, badModules(map));
  const hadFocus = document.activeElement && document.activeElement.dataset.focus === "map of modules";
  figure.draw = () => {
    const layout = layOut(map, holder, canvas);
    paint(map, layout, canvas);
    listen(map, layout, { holder, mark, readout });
    showCell(map, layout, moduleView.cell, { mark, readout });
    if (hadFocus) holder.focus({ preventScroll: true });  // a live page has built it anew
    return null;
  };
  return figure;
}

function describeMap(map) {
  const [first, last] = [map.steps[0], map.steps[map.steps.length - 1]];
  const range = map.isEmpty ? "no values above zero" : `values from ${formatNumber(10 ** map.low, 3)} to ${formatNumber(10 ** map.high, 3)}`;
  return `${MEASURES[map.measure].title}: ${map.names.length} modules, ${map.steps.length} measured updates from step ${first} to ${last}, ${range}. Arrow keys read single values, Enter draws the line of a module; a table of all modules follows.`;
}

function mapLegend(map) {
  const box = (color, text) => make("span", { class: "line" }, make("i", { class: "box", style: { background: rgb(color) } }), make("span", { class: "name" }, text));
  const usual = MEASURES[map.measure].usual, place = usual && (Math.log10(usual) - map.low) / (map.high - map.low);
  const bar = !map.isEmpty && make("span", { class: "map-scale" },
    make("span", null, (map.isBelow ? "≤ " : "") + formatNumber(10 ** map.low, 2)),
    make("i", { style: { background: `linear-gradient(90deg, ${SCALE.map(rgb).join(", ")})` } },
      place > 0.02 && place < 0.98 && make("b", { title: `usual: ${usual}`, style: { left: `${place * 100}%` } })),
    make("span", null, (map.isAbove ? "≥ " : "") + formatNumber(10 ** map.high, 2)),
    place > 0.02 && place < 0.98 && make("span", { class: "quiet" }, `│ ${usual} is usual`));
  return make("div", { class: "legend map-legend" }, bar, map.numZero > 0 && box(ZERO, "zero"), map.numBad > 0 && box(NOT_FINITE, "✕ not finite"),
    map.numMissing > 0 && make("span", { class: "name" }, "empty: no value"));
}

/** In words, as colours are not for everybody: which values were not finite, at any measured update. */
function badModules(map) {
  const { not_finite: found, num_not_finite: count } = map.table;
  if (!count) return null;
  const [step, name, measure] = found[0];
  return make("p", { class: "alarm" }, `${count === 1 ? "1 value was" : `${formatNumber(count)} values were`} not finite, first the ${MEASURES[measure].short} of ${name} at step ${formatNumber(step)}.`);
}

/** Where everything is, in pixels of the page. */
function layOut(map, holder, canvas) {
  const pen = canvas.getContext("2d");
  pen.font = `11px ${css("--font")}`;
  const width = Math.max(holder.clientWidth, 200), numRows = map.names.length, numColumns = map.steps.length;
  const rowHeight = Math.max(2, Math.min(20, Math.floor(640 / numRows)));
  const labels = rowHeight < MIN_LABEL ? new Set(map.names.map(blockOf)) : map.names;
  const widest = Math.max(...[...labels].map((label) => pen.measureText(label).width));
  const left = Math.round(Math.min(widest + 14, width * (width < 500 ? 0.4 : 0.34)));
  const columnWidth = Math.min((width - left - 4) / numColumns, 48);
  return { pen, width, left, rowHeight, columnWidth, numRows, numColumns, height: rowHeight * numRows, fullHeight: rowHeight * numRows + 38 };
}

function paint(map, layout, canvas) {
  const { pen, width, left, rowHeight, columnWidth, numRows, numColumns, height, fullHeight } = layout;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(fullHeight * ratio);
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${fullHeight}px`);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(paintCells(map), left, 0, columnWidth * numColumns, height);
  if (rowHeight >= 7 && columnWidth >= 7 && map.numBad) crossOut(map, layout);
  paintLabels(map, layout);
  pen.fillStyle = css("--quiet");
  pen.textAlign = "center";
  const every = Math.ceil(Math.max(...map.steps.map((step) => formatTick(step).length * 7 + 16)) / columnWidth);
  for (let column = (numColumns - 1) % every; column < numColumns; column += every) {  // the last one is always named
    const text = formatTick(map.steps[column]), half = pen.measureText(text).width / 2;
    pen.fillText(text, Math.min(Math.max(left + (column + 0.5) * columnWidth, left + half), width - half), height + 12);
  }
  pen.fillText(AXIS_NAMES.step, left + columnWidth * numColumns / 2, height + 30);
}

/** One pixel for each value: the browser enlarges it. */
function paintCells(map) {
  const cells = document.createElement("canvas");
  [cells.width, cells.height] = [map.steps.length, map.names.length];
  const pen = cells.getContext("2d"), image = pen.createImageData(cells.width, cells.height);
  map.columns.forEach((column, x) => column.forEach((value, y) => {
    const color = shade(map, value);
    if (color) image.data.set([...color, 255], (y * cells.width + x) * 4);
  }));
  pen.putImageData(image, 0, 0);
  return cells;
}

/** A cross on each value that is not finite. */
function crossOut(map, { pen, left, rowHeight, columnWidth }) {
  const arm = Math.min(rowHeight, columnWidth, 14) / 2 - 2;
  pen.strokeStyle = "#fff";
  pen.lineWidth = 1.5;
  pen.beginPath();
  map.columns.forEach((column, x) => column.forEach((value, y) => {
    if (typeof value !== "string") return;
    const [atX, atY] = [left + (x + 0.5) * columnWidth, (y + 0.5) * rowHeight];
    pen.moveTo(atX - arm, atY - arm);
    pen.lineTo(atX + arm, atY + arm);
    pen.moveTo(atX + arm, atY - arm);
    pen.lineTo(atX - arm, atY + arm);
  }));
  pen.stroke();
}

/** Names beside the rows: all of them, or those with which a block begins. */
function paintLabels(map, { pen, left, rowHeight }) {
  const isDense = rowHeight < MIN_LABEL;
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  let free = 0;
  map.names.forEach((name, row) => {
    const at = (row + 0.5) * rowHeight, place = moduleView.chosen.indexOf(name);
    if (place >= 0) {
      pen.fillStyle = color(place);
      pen.fillRect(left - 5, row * rowHeight, 4, Math.max(rowHeight - 1, 2));
    }
    const begins = !row || blockOf(name) !== blockOf(map.names[row - 1]);
    if (isDense && (!begins || at < free)) return;
    free = at + MIN_LABEL + 1;
    pen.fillStyle = place >= 0 ? css("--ink") : css("--quiet");
    pen.fillText(fitEnd(pen, isDense ? blockOf(name) : name, left - 10), left - 8, isDense ? Math.max(at, 6) : at);
  });
}

/** The repeated block that a module belongs to, such as "encoder.layer.3"; else the module above it. */
function blockOf(name) {
  const found = /^(.*?\.\d+)(\.|$)/.exec(name);
  return found ? found[1] : name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : name;
}

/** As much of the end of a name as there is room for, and the number of its layer: there names differ. */
function fitEnd(pen, name, width) {
  if (pen.measureText(name).width <= width) return name;
  const numbered = /^.*\.(\d+)\.(.+)$/.exec(name);
  if (numbered) {
    const [, number, rest] = numbered, whole = `…${number}.${rest}`;
    return pen.measureText(whole).width <= width ? whole : `…${number}` + fitEnd(pen, `.${rest}`, width - pen.measureText(`…${number}`).width);
  }
  let low = 1, high = name.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (pen.measureText("…" + name.slice(middle)).width <= width) high = middle; else low = middle + 1;
  }
  const dot = name.indexOf(".", low);
  return "…" + name.slice(dot >= 0 && dot - low <= 6 ? dot + 1 : low);
}

// ---- reading single values ----

function listen(map, layout, parts) {
  const { holder } = parts;
  const cellAt = (event) => {
    const box = holder.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - layout.left) / layout.columnWidth), row = Math.floor((event.clientY - box.top) / layout.rowHeight);
    const isInside = row >= 0 && row < layout.numRows && column < layout.numColumns;
    return isInside ? { row, column: Math.max(column, -1) } : null;  // -1: on its name
  };
  holder.onpointermove = (event) => showCell(map, layout, named(map, cellAt(event)), parts);
  holder.onpointerleave = () => showCell(map, layout, moduleView.cell, parts);
  holder.onclick = (event) => {
    const cell = cellAt(event);
    if (cell) chooseModule(named(map, cell));
  };
  holder.onkeydown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const at = placeOf(map, moduleView.cell) || { row: 0, column: layout.numColumns - 1 };
    const moves = {
      ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
      PageUp: [-PAGE_ROWS, 0], PageDown: [PAGE_ROWS, 0], Home: [0, -layout.numColumns], End: [0, layout.numColumns],
    };
    const isChoice = event.key === "Enter" || event.key === " ";
    if (!isChoice && event.key !== "Escape" && !moves[event.key]) return;
    event.preventDefault();
    const [down, right] = moduleView.cell && moves[event.key] || [0, 0];  // the first key only shows where one is
    const bound = (value, count) => Math.max(0, Math.min(count - 1, value));
    const cell = { row: bound(at.row + down, layout.numRows), column: bound(at.column + right, layout.numColumns) };
    moduleView.cell = event.key === "Escape" ? null : named(map, cell);
    if (isChoice) chooseModule(moduleView.cell);
    else showCell(map, layout, moduleView.cell, parts);
  };
}

/** A cell by what it stands for: rows and columns move as a live run goes on. */
const named = (map, cell) => cell && { name: map.names[cell.row], step: map.steps[cell.column] };

function placeOf(map, cell) {
  if (!cell) return null;
  const row = map.names.indexOf(cell.name), column = cell.step === undefined ? -1 : nearest(map.steps, cell.step);
  return row < 0 ? null : { row, column };
}

/** Outline a cell and say what it holds. */
function showCell(map, layout, cell, { mark, readout }) {
  const place = placeOf(map, cell);
  mark.hidden = !place;
  if (!place) {
    readout.replaceChildren(make("span", { class: "quiet" }, "Point at a module to read its values; click it to draw its line."));
    return;
  }
  const isName = place.column < 0, column = isName ? layout.numColumns - 1 : place.column;
  const left = isName ? 0 : layout.left + column * layout.columnWidth;
  const sizes = { left, top: place.row * layout.rowHeight, width: isName ? layout.left : layout.columnWidth, height: layout.rowHeight };
  for (const [side, size] of Object.entries(sizes)) mark.style.setProperty(side, `${size}px`);
  const value = describeModuleValue(map.columns[column][place.row]);
  readout.replaceChildren(make("b", null, cell.name), make("span", { class: "quiet" }, ` step ${formatNumber(map.steps[column])} · ${MEASURES[map.measure].short} `), make("b", null, value));
}

function chooseModule(cell) {
  const { chosen } = moduleView;
  moduleView.cell = cell;
  if (chosen.includes(cell.name)) chosen.splice(chosen.indexOf(cell.name), 1);
  else chosen.push(cell.name);
  if (chosen.length > MAX_LINES) chosen.shift();
  redrawModules();
}

// ---- lines and numbers ----

/** A chart of the chosen modules; `drawChart` draws it. */
function planLines(run, map) {
  const lines = moduleView.chosen.map((name, order) => {
    const row = map.names.indexOf(name);
    const points = map.steps.map((step, column) => [step, map.columns[column][row]]);
    const finite = points.filter(([, value]) => typeof value === "number"), bad = points.filter(([, value]) => typeof value === "string");
    const curve = { split: "module", metric: map.measure, steps: finite.map(([step]) => step), values: finite.map(([, value]) => value) };
    if (bad.length) Object.assign(curve, { not_finite: bad.map(([step]) => step), num_not_finite: bad.length });
    return { run, curve, order, label: name, color: order, dash: [] };
  });
  return { metric: "modules", title: `${MEASURES[map.measure].title} of the chosen modules`, lines };
}

/** Every module with its last values, for those who do not see colours and for copying; made when it is opened. */
function moduleTable(found) {
  const last = found.steps.length - 1, content = make("div"), measures = Object.keys(MEASURES);
  const rows = () => found.names.map((name, row) => [make("code", null, name), ...measures.map((measure) => describeModuleValue(found[measure][last][row]))]);
  const fill = () => content.replaceChildren(table(["Module", ...measures.map((measure) => MEASURES[measure].title)], rows(), { numeric: [1, 2, 3] }));
  const details = folded("module-table", `All ${found.names.length} modules at step ${formatNumber(found.steps[last])} in numbers`, content);
  if (details.open) fill();
  else details.addEventListener("toggle", () => details.open && !content.children.length && fill());
  return details;
}
