/* The parts of the page with text and tables. Each function returns an element, or null if it has no data. */

const MAX_ALERTS = 3;
const PART_ORDER = ["data", "forward", "backward", "optimizer", "evaluation", "saving", "callbacks"];

function folded(id, title, content) {
  const details = make("details", { open: view.open.has(id), ontoggle: () => {
    if (details.open) view.open.add(id); else view.open.delete(id);
  } }, make("summary", null, title), content);
  return details;
}

// ---- the headline ----

function headline(data) {
  const { runs } = data;
  if (runs.length > 1) {
    return make("header", { class: "top" },
      make("h1", null, `${runs.length} runs compared`),
      make("div", { class: "runs" }, runs.map((run, i) => make("div", { class: "run" },
        make("i", { style: { background: color(i) } }), make("b", null, run.label), statusOf(run), warningLink(run),
        make("span", { class: "quiet" }, progressText(run)), bestText(run)))),
      runs.map((run) => alerts(run, true)));
  }
  const run = runs[0];
  const share = run.max_steps ? Math.min(1, run.step / run.max_steps) : null;
  return make("header", { class: "top" },
    make("div", { class: "title" }, make("h1", null, run.name), statusOf(run), warningLink(run)),
    share !== null && make("div", { class: "progress", role: "progressbar", "aria-valuenow": Math.round(share * 100), "aria-label": "Progress" },
      make("div", { style: { width: `${share * 100}%` } })),
    make("dl", { class: "facts" }, factsOf(run).map(([name, value, note]) =>
      make("div", null, make("dt", null, name), make("dd", null, value), note && make("dd", { class: "note" }, note)))),
    alerts(run, false));
}

const isError = (warning) => ["ERROR", "CRITICAL"].includes(warning.level);
const severity = (warning) => isError(warning) ? "error" : "warning";

/** What must not be overlooked: errors first, then the latest warnings; the rest is in its section. */
function alerts(run, isCompared) {
  const ranked = run.warnings.filter((w) => !isCompared || isError(w))
    .sort((a, b) => isError(b) - isError(a) || (b.step || 0) - (a.step || 0));
  if (!ranked.length) return null;
  const shown = ranked.slice(0, MAX_ALERTS);
  const more = ranked.length - shown.length;
  return make("div", { class: "alerts", role: "status" }, shown.map((w) => make("p", { class: `alert ${severity(w)}` },
    make("b", null, isError(w) ? "Error" : "Warning"),
    make("span", { class: "quiet" }, [isCompared && `${run.label}, `, w.step ? `step ${formatNumber(w.step)}` : "at the start"].filter(Boolean).join("")),
    make("span", { class: "message" }, w.message))),
  more > 0 && make("p", null, make("a", { href: "#warnings" }, `and ${more} more`)));
}

function statusOf(run) {
  const silence = run.last_time ? Date.now() / 1000 - run.last_time : 0;
  if (run.status === "running" && !run.last_time) return make("span", { class: "status" }, `as of step ${run.step}`);
  if (run.status === "running" && silence > 600) {
    return make("span", { class: "status" }, `no news for ${formatDuration(silence)}`);
  }
  return make("span", { class: `status ${run.status}` }, run.status);
}

function warningLink(run) {
  const errors = run.warnings.filter(isError).length, count = run.warnings.length - errors;
  const link = (n, word) => n > 0 && make("a", { class: `status ${word}`, href: "#warnings" }, n === 1 ? `1 ${word}` : `${n} ${word}s`);
  return [link(errors, "error"), link(count, "warning")];
}

function progressText(run) {
  return run.max_steps ? `step ${formatNumber(run.step)} of ${formatNumber(run.max_steps)}` : `step ${formatNumber(run.step)}`;
}

function bestText(run) {
  const { best } = run;
  return best && make("span", { class: "quiet" }, `best ${best.name} ${formatNumber(best.value, 4)} at step ${formatNumber(best.step)}`);
}

/** Updates per second between the first and the last log; a resumed run may not have the earlier logs. */
function speedOf(run) {
  const [steps, seconds] = run.moments, end = steps.length - 1;
  const elapsed = end > 0 ? seconds[end] - seconds[0] : 0;
  return elapsed > 0 ? (steps[end] - steps[0]) / elapsed : run.summary.train_steps_per_second;
}

function factsOf(run) {
  const last = (split, metric) => {
    const curve = run.curves.find((c) => c.split === split && c.metric === metric);
    return curve && curve.values.length ? curve.values[curve.values.length - 1] : null;
  };
  const facts = [["Step", formatNumber(run.step), run.max_steps ? `of ${formatNumber(run.max_steps)}` : null]];
  if (run.epoch !== null) facts.push(["Epoch", formatNumber(run.epoch, 4), null]);
  const seconds = run.seconds ?? run.summary.train_runtime;
  const speed = speedOf(run);
  const left = run.status === "running" && speed ? (run.max_steps - run.step) / speed : 0;
  const resumed = run.resumed_at.length ? `resumed at ${run.resumed_at.slice(-3).map((s) => formatNumber(s)).join(", ")}` : null;
  if (seconds) facts.push(["Time", formatDuration(seconds), left > 0 ? `about ${formatDuration(left)} left` : resumed]);
  if (last("train", "loss") !== null) facts.push(["Loss", formatNumber(last("train", "loss"), 4), "last logged"]);
  if (run.best) facts.push([`Best ${run.best.name}`, formatNumber(run.best.value, 4), `at step ${formatNumber(run.best.step)}`]);
  if (speed) facts.push(["Updates per second", formatNumber(speed, 3), null]);
  if (run.model.num_parameters) facts.push(["Parameters", formatTick(run.model.num_parameters), run.model.class]);
  return facts;
}

// ---- where the time goes ----

function timeBars(runs) {
  const timed = runs.filter((run) => run.parts.steps.length);
  if (!timed.length) return null;
  const names = partNames(timed);
  const totals = timed.map((run) => names.map((name) => (run.parts.parts[name] || []).reduce((a, b) => a + b, 0)));
  const bars = timed.map((run, r) => {
    const sum = totals[r].reduce((a, b) => a + b, 0) || 1;
    return make("div", { class: "bar-row" }, timed.length > 1 && make("span", { class: "quiet" }, run.label),
      make("div", { class: "bar" }, names.map((name, i) => make("div", {
        style: { width: `${totals[r][i] / sum * 100}%`, background: partColor(name) },
        title: `${name}: ${formatDuration(totals[r][i])}, ${formatNumber(totals[r][i] / sum * 100, 3)} %`,
      }))));
  });
  const key = make("div", { class: "legend key" }, names.map((name, i) => {
    const sums = totals.map((total) => `${formatDuration(total[i])} · ${formatNumber(total[i] / (total.reduce((a, b) => a + b, 0) || 1) * 100, 2)} %`);
    return make("span", { class: "line" }, make("i", { class: "box", style: { background: partColor(name) } }),
      make("span", { class: "name" }, name), timed.length === 1 && make("span", { class: "value" }, sums[0]));
  }));
  return make("figure", { class: "chart wide", id: "time" }, make("figcaption", null, make("h3", null, "Where the time goes")), bars, key);
}

const partNames = (runs) => [...new Set([...PART_ORDER, ...runs.flatMap((run) => Object.keys(run.parts.parts))])]
  .filter((name) => runs.some((run) => run.parts.parts[name]));
const partColor = (name) => css(`--p${Math.max(0, PART_ORDER.indexOf(name)) % 7}`);

/** Shares of the time over the run, stacked. */
function drawShares(run) {
  if (run.parts.steps.length < 4) return null;
  const names = partNames([run]);
  const sums = run.parts.steps.map((_, i) => names.reduce((sum, name) => sum + run.parts.parts[name][i], 0) || 1);
  let below = sums.map(() => 0);
  const stacked = names.map((name) => (below = below.map((b, i) => b + run.parts.parts[name][i] / sums[i] * 100)));
  const holder = make("div", { class: "plot", role: "img", "aria-label": "Share of the time by part of the loop" });
  const figure = make("figure", { class: "chart wide", "data-metric": "shares" },
    make("figcaption", null, make("h3", null, "Share of the time, over the run")), holder);
  figure.draw = () => {
    const tip = make("div", { class: "tip", hidden: true });
    const top = names.map((name, i) => i).reverse();  // draw the highest curve first: the lower ones cover it
    const chart = new uPlot({
      ...frame(holder, 160),
      scales: { x: { time: false, range: rangeOf }, y: { range: [0, 100] } },
      axes: [axisX(), axis({ size: 46, values: (u, ticks) => ticks.map((t) => `${t} %`) })],
      series: [{}, ...top.map((i) => ({
        fill: partColor(names[i]), stroke: partColor(names[i]), width: 0, points: { show: false },
        paths: uPlot.paths.stepped({ align: -1 }),
      }))],
      hooks: { setCursor: [(u) => showShares(u, run, names, sums, tip)], setSelect: [zoomToSelection] },
    }, [positions(run, run.parts.steps), ...top.map((i) => stacked[i])], holder);
    chart.over.append(tip);
    return chart;
  };
  return figure;
}

function showShares(u, run, names, sums, tip) {
  const at = u.cursor.idx;
  tip.hidden = u.cursor.left < 0 || at === null || at === undefined || !u.over.matches(":hover");
  if (tip.hidden) return;
  tip.replaceChildren(make("div", { class: "at" }, describeX(u.data[0][at])), ...names.map((name) => make("div", { class: "row" },
    make("i", { style: { background: partColor(name) } }), make("span", { class: "name" }, name),
    make("b", null, `${formatNumber(run.parts.parts[name][at] / sums[at] * 100, 3)} %`))));
  placeTip(u, tip);
}

// ---- tables ----

/** The last values of some curves, and their extremes where there is one run. */
function valueTable(data, isWanted) {
  const keys = new Map();
  data.runs.forEach((run, r) => run.curves.forEach((curve) => {
    if (!curve.values.length || !isWanted(curve)) return;
    const key = `${curve.split} ${curve.metric}`;
    if (!keys.has(key)) keys.set(key, { split: curve.split, metric: curve.metric, found: [] });
    keys.get(key).found[r] = curve;
  }));
  const entries = [...keys.values()].sort((a, b) => (a.split === "train") - (b.split === "train"));
  if (!entries.length) return null;
  const last = (curve) => curve ? formatNumber(curve.values[curve.values.length - 1]) : "–";
  const isMany = data.runs.length > 1;
  const heads = isMany ? ["Split", "Metric", ...data.runs.map((run) => run.label)] : ["Split", "Metric", "Last", "Lowest", "Highest"];
  const rows = entries.map((entry) => {
    const first = [breakable(entry.split), titleOf(entry.metric)];
    return isMany ? [...first, ...data.runs.map((_, r) => last(entry.found[r]))]
      : [...first, last(entry.found[0]), extreme(entry.found[0], Math.min), extreme(entry.found[0], Math.max)];
  });
  return table(heads, rows, { class: "results", numeric: heads.map((_, i) => i).slice(2) });
}

const isSpeed = (curve) => SPEED.includes(curve.metric);

function results(data) {
  const found = valueTable(data, (curve) => !isSpeed(curve));
  return found && section("results", "Results", found);
}

/** Times and speeds of evaluations, in the section on speed; those of training have a chart. */
function timing(data) {
  const found = valueTable(data, (curve) => isSpeed(curve) && curve.split !== "train");
  return found && folded("timing", "Times and speeds of the evaluations", found);
}

/** Ranks side by side, of a run of several processes. */
function rankTable(data) {
  if (data.runs.length !== 1 || !(data.runs[0].ranks || []).length) return null;
  const rows = data.runs[0].ranks.map((rank) => [
    formatNumber(rank.rank), rank.rows_per_second === null ? "–" : formatNumber(rank.rows_per_second, 3),
    formatDuration(rank.busy), formatDuration(rank.waited), rank.is_slowest && make("span", { class: "badge" }, "slowest"),
  ]);
  return folded("ranks", "Ranks: their own speed, and how long they waited for each other",
    table(["Rank", "Rows per second", "Busy", "Waited", ""], rows, { numeric: [0, 1, 2, 3] }));
}

function extreme(curve, choose) {
  const value = curve.values.reduce((a, b) => choose(a, b));
  return [formatNumber(value), make("span", { class: "quiet at-step" }, ` @ ${formatNumber(curve.steps[curve.values.indexOf(value)])}`)];
}

function checkpoints(data) {
  const rows = data.runs.flatMap((run) => run.checkpoints.filter((c) => c.is_there || c.is_best || c.is_last).map((c) => [
    ...(data.runs.length > 1 ? [run.label] : []), c.name, formatNumber(c.step),
    [c.is_best && make("span", { class: "badge best" }, "best"), c.is_last && make("span", { class: "badge" }, "last"),
      !c.is_there && make("span", { class: "quiet" }, "not there any more")],
  ]));
  const gone = data.runs.reduce((sum, run) => sum + run.checkpoints.length, 0) - rows.length;
  if (!rows.length) return null;
  const heads = [...(data.runs.length > 1 ? ["Run"] : []), "Checkpoint", "Step", ""];
  return section("checkpoints", "Checkpoints", table(heads, rows, { numeric: [heads.length - 2] }),
    gone > 0 && make("p", { class: "quiet" }, `${gone} older ones have been removed since, as save_total_limit asks.`));
}

function settings(data) {
  const { runs, defaults } = data;
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))].sort();
  if (!names.length) return null;
  const isEmpty = (v) => v === null || v === undefined || v === false || v === "" || v === "none" || (typeof v === "object" && !Object.keys(v).length);
  const text = (v) => JSON.stringify(v);
  const isSet = (name) => runs.some((run) => {
    const value = run.settings[name];
    if (!(name in defaults) || (typeof value === "string" && value.startsWith("<"))) return false;
    return text(value) !== text(defaults[name]) && !(isEmpty(value) && isEmpty(defaults[name]));
  });
  const differs = (name) => new Set(runs.filter((run) => name in run.settings).map((run) => text(run.settings[name]))).size > 1;
  const isOwn = (name) => !data.filled_in.includes(name);
  const chosen = names.filter((name) => isOwn(name) && (runs.length > 1 ? differs(name) : isSet(name)));
  const cell = (run, name) => name in run.settings ? make("code", null, formatValue(run.settings[name])) : "–";
  const row = (name) => [make("code", null, breakable(name)), ...runs.map((run) => cell(run, name))];
  const heads = ["Argument", ...(runs.length > 1 ? runs.map((run) => run.label) : ["Value"])];
  const shown = runs.length > 1
    ? table(heads, chosen.map(row), { class: "pairs" })
    : table([...heads, "Default"], chosen.map((name) => [...row(name), make("code", { class: "quiet" }, formatValue(defaults[name]))]), { class: "pairs" });
  const note = runs.length > 1 ? "The runs have the same arguments." : "All arguments are the defaults.";
  return section("arguments", runs.length > 1 ? "Arguments that differ" : "Arguments",
    chosen.length ? shown : make("p", { class: "quiet" }, note),
    folded("all-arguments", `All ${names.length} arguments`, table(heads, names.map(row), { class: "pairs" })));
}

function environment(data) {
  const groups = [["Versions", "versions"], ["Machine", "machine"], ["Model", "model"]];
  const cards = groups.map(([title, field]) => {
    const known = [...new Set(data.runs.flatMap((run) => Object.keys(run[field])))];
    const values = (name) => data.runs.filter((run) => name in run[field]).map((run) => JSON.stringify(run[field][name]));
    const names = data.runs.length > 1 ? known.filter((name) => new Set(values(name)).size > 1) : known;
    if (!names.length) return null;
    const cell = (run, name) => run[field][name] === undefined ? "–" : typeof run[field][name] === "number" && field === "model" ? formatNumber(run[field][name]) : formatValue(run[field][name]);
    const rows = names.map((name) => {
      return [name.replaceAll("_", " "), [...new Set(data.runs.map((run) => cell(run, name)))].join("  ·  ")];
    });
    return make("div", { class: "card" }, make("h3", null, title), table(["", ""], rows, { class: "plain" }));
  });
  return cards.some(Boolean) ? section("environment", data.runs.length > 1 ? "Environment that differs" : "Environment", make("div", { class: "cards" }, cards)) : null;
}

function warnings(data) {
  const rows = data.runs.flatMap((run) => run.warnings.map((w) => ({ mark: severity(w), cells: [
    ...(data.runs.length > 1 ? [run.label] : []), w.step === null || w.step === undefined ? "–" : formatNumber(w.step),
    make("span", { class: `badge ${severity(w)}` }, severity(w)),
    make("span", { class: "message" }, w.message, w.count > 1 && make("span", { class: "badge" }, `${w.count} times`)),
  ] })));
  const heads = [...(data.runs.length > 1 ? ["Run"] : []), "Step", "", "Message"];
  return rows.length ? section("warnings", "Warnings and errors", table(heads, rows, { class: "warnings", numeric: [heads.length - 3] })) : null;
}
