/* The page of runs: the bar with the choices, samples, and all parts in their order. */

const HIDDEN_COLUMNS = ["correct", "outlier"];  // shown as marks

// ---- samples over time ----

function samples(shown) {
  const groups = new Map();
  shown.runs.forEach((run) => run.samples.forEach((block) => {
    const name = shown.runs.length > 1 ? `${run.label} · ${block.source}` : block.source;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(block);
  }));
  if (!groups.size) return null;
  const isTraining = (name) => /(^|· )train/.test(name);
  const names = [...groups.keys()].sort((a, b) => isTraining(a) - isTraining(b));  // evaluation first
  const chosen = view.samples;
  if (!groups.has(chosen.group)) chosen.group = names[0];
  const blocks = groups.get(chosen.group);
  const at = chosen.index === undefined ? blocks.length - 1 : Math.min(chosen.index, blocks.length - 1);
  const timesWrong = countWrong(blocks);
  const body = make("div", { class: "sample-body" });
  const label = make("output", { class: "at" });
  const slider = make("input", { type: "range", min: 0, max: blocks.length - 1, "aria-label": "Step", oninput: () => go(+slider.value) });
  const before = make("button", { type: "button", "aria-label": "Earlier", onclick: () => go(+slider.value - 1) }, "‹");
  const after = make("button", { type: "button", "aria-label": "Later", onclick: () => go(+slider.value + 1) }, "›");
  function go(index) {
    const place = Math.max(0, Math.min(blocks.length - 1, index));
    chosen.index = place === blocks.length - 1 ? undefined : place;  // at the end, show new blocks as they come
    slider.value = place;
    before.disabled = place === 0;
    after.disabled = place === blocks.length - 1;
    label.textContent = `step ${formatNumber(blocks[place].step)} · ${place + 1} of ${blocks.length}`;
    body.replaceChildren(sampleTable(worstFirst(blocks[place].rows, timesWrong)));
    showMarks(body);
  }
  const choice = names.length > 1 && make("select", { "aria-label": "Source", onchange: (event) => {
    view.samples = { group: event.target.value };
    refresh("samples");
  } }, names.map((name) => make("option", { value: name, selected: name === chosen.group }, name)));
  go(at);
  return section("samples", "Samples", make("div", { class: "controls" }, choice, before, slider, after, label), body);
}

function isWrong(row) {
  if (typeof row.correct === "boolean") return !row.correct;
  if (Number.isFinite(row.prediction) && !Number.isInteger(row.prediction)) return null;  // a measure is near or far, never equal
  return row.target !== undefined && row.prediction !== undefined ? formatValue(row.target) !== formatValue(row.prediction) : null;
}

const identify = (row) => row.row !== undefined ? `row ${row.row}` : `input ${formatValue(row.input)}`;

/** How often each row was wrong, over all steps. */
function countWrong(blocks) {
  const counts = new Map();
  for (const block of blocks) {
    for (const row of block.rows) if (isWrong(row)) counts.set(identify(row), (counts.get(identify(row)) || 0) + 1);
  }
  return counts;
}

/** Rows that are or were wrong stay at the top at every step, in the same order. */
const worstFirst = (rows, timesWrong) => rows.map((row) => ({ row, times: timesWrong.get(identify(row)) || 0 }))
  .sort((a, b) => b.times - a.times).map(({ row }) => row);

function sampleTable(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => !HIDDEN_COLUMNS.includes(name));
  const isNumber = (name) => rows.every((row) => typeof row[name] === "number");
  const marks = { true: ["✕", "wrong"], false: ["✓", "right"], null: ["", ""] };
  const lines = rows.map((row) => {
    const [mark, word] = marks[isWrong(row)];
    const sign = make("span", { class: `mark ${word}`, title: word, "aria-label": word }, mark);
    return { mark: word, cells: [sign, ...names.map((name) => row[name] === undefined ? "" : sampleCell(row, name))] };
  });
  const numeric = names.flatMap((name, i) => isNumber(name) ? [i + 1] : []);
  return table(["", ...names.map(titleOf)], lines, { class: "samples", numeric });
}

function sampleCell(row, name) {
  const text = formatValue(row[name]);
  if (name !== "context") return make("span", { class: `text ${name === "prediction" && isWrong(row) ? "given" : ""}` }, text);
  const places = [[row.target, "answer"], ...(isWrong(row) ? [[row.prediction, "given"]] : [])];
  return make("span", { class: "text" }, markPlaces(text, places));
}

/** The text with the first occurrence of each phrase marked. */
function markPlaces(text, phrases) {
  const found = phrases.filter(([phrase]) => typeof phrase === "string" && phrase.trim())
    .map(([phrase, kind]) => ({ at: text.indexOf(phrase), length: phrase.length, kind })).filter(({ at }) => at >= 0)
    .sort((a, b) => a.at - b.at);
  const pieces = [];
  let end = 0;
  for (const { at, length, kind } of found) {
    if (at < end) continue;  // inside the one before
    pieces.push(text.slice(end, at), make("mark", { class: kind }, text.slice(at, at + length)));
    end = at + length;
  }
  return [...pieces, text.slice(end)];
}

/** Scroll long texts to what is marked in them. */
function showMarks(body) {
  requestAnimationFrame(() => body.querySelectorAll(".text").forEach((text) => {
    const mark = text.querySelector("mark");
    if (mark && text.scrollHeight > text.clientHeight) text.scrollTop = mark.offsetTop - text.offsetTop - text.clientHeight / 2;
  }));
}

// ---- the bar with the choices ----

function toolbar(shown) {
  const axes = ["step", "time", "epoch"].filter((name) => shown.runs.every((run) => hasAxis(run, name)));
  const buttons = axes.map((name) => make("button", {
    type: "button", "aria-pressed": String(view.x === name),
    onclick: () => { view.x = name; view.zoom = null; refresh("toolbar"); redrawCharts(); },
  }, name));
  const amount = make("output", null, formatNumber(view.smoothing));
  const slider = make("input", { type: "range", min: 0, max: 100, value: toSlider(view.smoothing), id: "smoothing", oninput: () => {
    view.smoothing = fromSlider(+slider.value);
    amount.textContent = formatNumber(view.smoothing);
    redrawCharts();
  } });
  return make("div", { class: "toolbar" },
    axes.length > 1 && make("div", { class: "choice", role: "group", "aria-label": "Axis" }, buttons),
    make("label", null, "smoothing", slider, amount),
    make("span", { class: "hint quiet" }, "drag to zoom, double-click to see all"));
}

// the slider is finer where smoothing is strong: half way is 0.9
const fromSlider = (at) => at === 0 ? 0 : Math.round((1 - Math.pow(10, -at / 50)) * 1000) / 1000;
const toSlider = (weight) => Math.round(-50 * Math.log10(1 - weight));

// ---- putting it together ----

const figuresOf = (shown, isSpeed) => planCharts(shown.runs).filter((plan) => plan.isSpeed === isSpeed).map(drawChart);

/** Charts in two or three columns, whichever leaves no chart alone in the last row. */
function grid(figures) {
  const narrow = figures.filter((figure) => figure && !figure.classList.contains("wide")).length;
  return make("div", { class: narrow % 3 === 1 && narrow % 2 === 0 || narrow === 2 ? "grid two" : "grid" }, figures);
}

function noCurves(shown) {
  const isLogged = shown.runs.some((run) => run.curves.some((curve) => curve.values.length));
  return isLogged ? "A curve needs two points; logging_steps says how often there is one. What was logged is under Results."
    : "Nothing is logged yet.";
}

const BUILDERS = {
  headline, toolbar,
  curves: (shown) => {
    const figures = figuresOf(shown, false), constants = describeConstants(shown.runs);
    return section("curves", "Curves", figures.length ? grid(figures) : make("p", { class: "quiet" }, noCurves(shown)),
      constants && make("p", { class: "quiet constants" }, `The same all along: ${constants}.`));
  },
  samples, hardest, classes, answers, results, modules,
  speed: (shown) => {
    const figures = [timeBars(shown.runs), shown.runs.length === 1 && drawShares(shown.runs[0]), ...figuresOf(shown, true)];
    const times = timing(shown), ranks = rankTable(shown);
    return figures.some(Boolean) || times ? section("speed", "Speed", figures.some(Boolean) && grid(figures), ranks, times) : null;
  },
  checkpoints, model: modelSection, settings, warnings, environment,
  footer: (shown) => make("footer", { class: "quiet" },
    shown.live ? "Live. " : `Written ${formatTime(shown.written)}. `,
    shown.runs.length === 1 && shown.runs[0].folder, make("br"), "Curves by uPlot 1.6.32, © Leon Sorokin, MIT licence."),
};
const DRAWN = ["curves", "modules", "speed"];  // parts with figures
const CHARTS_ONLY = ["toolbar", "curves", "speed"];

/** Names that tell the runs apart. */
function labelRuns() {
  const names = data.runs.map((run) => run.name);
  data.runs.forEach((run, i) => {
    const isUnique = names.filter((name) => name === run.name).length === 1;
    const folder = run.folder.split(/[\\/]/).filter(Boolean).pop() || "";
    const folders = data.runs.map((other) => other.folder.split(/[\\/]/).filter(Boolean).pop());
    run.label = isUnique ? run.name : folders.filter((other) => other === folder).length === 1 ? folder : `${run.name} ${i + 1}`;
  });
}

function render() {
  labelRuns();
  const parts = Object.keys(BUILDERS);
  if (data.runs.length > 1) parts.splice(parts.indexOf("toolbar"), 0, ...parts.splice(parts.indexOf("settings"), 1));  // what differs, first
  const names = data.scope === "charts" ? CHARTS_ONLY : parts;
  renderParts(names);
}
