/* The page of a search: what it is, its best trials, the bar with the choices, and all parts in their order. */

const MAX_FRONT = 20;  // of the best trials, in their table
const MIN_SILENCE = 600;
const view = { logs: {}, hidden: new Set(), brushes: new Map(), isBrushing: false, trial: null, focused: null, pinned: null, holder: null, sort: null, color: 0 };
let model = null;  // the search in the form that all parts use

/** Trials, names and objectives, with what several parts ask for. */
function prepare(search) {
  const { trials, names } = search, isSingle = search.directions.length === 1;
  const short = search.objective.length > 28 ? "objective" : search.objective;
  const objectives = search.directions.map((direction, i) => {
    const isMax = direction === "maximize", label = isSingle ? short : `${short} ${i + 1}`;
    const isBetter = (a, b) => isMax ? a > b : a < b;
    return { id: `objective ${i}`, label, title: `${label} ${isMax ? "↑" : "↓"}`, isMax, isBetter, of: (trial) => trial.values ? trial.values[i] : undefined };
  });
  const worstFirst = objectives.map((o) => {
    const value = (trial) => Number.isFinite(o.of(trial)) ? o.of(trial) : o.isMax ? -Infinity : Infinity;
    return [...trials].sort((a, b) => Number.isFinite(o.of(a)) - Number.isFinite(o.of(b)) || (value(a) === value(b) ? 0 : o.isBetter(value(a), value(b)) ? 1 : -1));
  });
  return { trials, names, objectives, worstFirst, levels: objectives.map((o, i) => findLevels(worstFirst[i], o)),
    best: new Set(search.best), byNumber: new Map(trials.map((trial) => [trial.number, trial])) };
}

/** A colour for each trial by its rank: one that went astray must not take all colours from the others.

The better, the finer: the worst third shares one colour, and the best fourteenth has one of its own. */
function findLevels(worstFirst, objective) {
  const ranked = worstFirst.filter((trial) => Number.isFinite(objective.of(trial)));
  return new Map(ranked.map((trial, i) => [trial.number, ranked.length > 1 ? Math.min(NUM_LEVELS - 1, Math.floor((i / (ranked.length - 1)) ** 2 * NUM_LEVELS)) : NUM_LEVELS - 1]));
}

// ---- the headline ----

function headline({ search, written }) {
  const numDone = Object.values(search.counts).reduce((a, b) => a + b, 0);
  const share = search.num_trials ? Math.min(1, numDone / search.num_trials) : null;
  return make("header", { class: "top" },
    make("div", { class: "title" }, make("h1", null, search.name), statusOf(search, numDone, written)),
    share !== null && make("div", { class: "progress", role: "progressbar", "aria-valuenow": Math.round(share * 100), "aria-label": "Progress" },
      make("div", { style: { width: `${share * 100}%` } })),
    make("dl", { class: "facts" }, factsOf(search, numDone).map(([name, value, note]) =>
      make("div", null, make("dt", null, name), make("dd", null, value), note && make("dd", { class: "note" }, note)))),
    announcer);
}

function statusOf(search, numDone, written) {
  if (search.is_over) {
    const isWhole = search.num_trials === null || numDone >= search.num_trials;
    return make("span", { class: `status ${isWhole ? "finished" : ""}` }, isWhole ? "finished" : "ended");
  }
  const silence = Date.now() / 1000 - written, longest = Math.max(0, ...search.trials.map((trial) => trial.seconds));
  const isSilent = silence > Math.max(MIN_SILENCE, 3 * longest);
  return make("span", { class: `status ${isSilent ? "" : "running"}` }, isSilent ? `no news for ${formatDuration(silence)}` : "running");
}

function factsOf(search, numDone) {
  const left = search.is_over || !search.num_trials || !numDone ? 0 : (search.num_trials - numDone) * search.seconds / numDone;
  const counts = STATES.filter((state) => search.counts[state]).map((state) => `${formatNumber(search.counts[state])} ${state}`).join(", ");
  const best = model.byNumber.get(search.best[0]);
  const ways = [...new Set(search.directions)].map((way) => way === "maximize" ? "higher is better" : "lower is better");
  const note = search.directions.length > 1 ? `${search.directions.length} objectives: ${search.directions.join(", ")}` : ways[0];
  const facts = [["Objective", make("span", { class: "objective-name" }, breakable(search.objective)), note]];
  if (best && model.objectives.length === 1) facts.push(["Best", formatObjective(model.objectives[0].of(best)), `trial ${best.number}`]);
  if (best && model.objectives.length > 1) facts.push(["Best", formatNumber(search.best.length), "trials that no other surpasses"]);
  facts.push(["Trials", formatNumber(numDone), [search.num_trials && `of ${formatNumber(search.num_trials)}`, counts].filter(Boolean).join(": ") || null]);
  facts.push(["Time of trials", formatDuration(search.seconds), left > 0 ? `about ${formatDuration(left)} left, one after another` : null]);
  if (search.backend) facts.push(["Backend", search.backend, null]);
  return facts;
}

// ---- the best ----

function best({ search }) {
  const found = search.best.map((number) => model.byNumber.get(number)).filter(Boolean);
  if (!found.length) {
    const isAny = model.trials.length > 0;
    return make("p", { class: "quiet nothing" }, isAny ? "No trial has come to its end yet with an objective, so there is no best one." : "No trial has ended yet.");
  }
  return found.length === 1 && model.objectives.length === 1 ? bestTrial(found[0]) : frontTable(found, search.folder);
}

const pathOf = (path) => path ? make("code", null, path) : make("span", { class: "quiet" }, "no checkpoint of this evaluation was saved");

function bestTrial(trial) {
  const link = trial.link ? make("a", { href: trial.link }, `trial ${trial.number}`) : `trial ${trial.number}`;
  const values = model.names.filter((name) => name in trial.params).map((name) =>
    make("div", null, make("dt", null, breakable(name)), make("dd", null, make("code", null, formatValue(trial.params[name])))));
  return section("best", "Best trial", make("p", null, link, `: ${model.objectives[0].label} `, make("b", null, formatObjective(trial.values[0])), trial.step !== null && ` at step ${formatNumber(trial.step)}`),
    make("dl", { class: "facts values" }, values), make("p", { class: "path" }, pathOf(trial.checkpoint)));
}

function frontTable(found, folder) {
  const inside = (path) => path && path.startsWith(folder) ? path.slice(folder.length).replace(/^[\\/]/, "") : path;
  const heads = ["Trial", ...model.objectives.map((o) => o.title), ...model.names, "Checkpoint"];
  const cells = found.slice(0, MAX_FRONT).map((trial) => [trial.link ? make("a", { href: trial.link }, String(trial.number)) : String(trial.number),
    ...model.objectives.map((o) => formatObjective(o.of(trial))),
    ...model.names.map((name) => name in trial.params ? make("code", null, formatValue(trial.params[name])) : "–"), pathOf(inside(trial.checkpoint))]);
  const more = found.length - cells.length;
  return section("best", "Best trials", make("p", { class: "quiet" }, "No other trial is better than one of these by an objective without being worse by another. Checkpoints are in ", make("code", null, folder), "."),
    table(heads, cells, { class: "front", numeric: [0, ...model.objectives.map((_, i) => i + 1)] }),
    more > 0 && make("p", { class: "quiet" }, `and ${more} more, marked in the table below`));
}

// ---- the bar with the choices ----

function toolbar({ search }) {
  if (!model.trials.length) return null;
  const states = STATES.filter((state) => search.counts[state]).map((state) => make("button", {
    type: "button", class: "state-choice", "aria-pressed": String(!view.hidden.has(state)), title: "Show or hide", "data-focus": `state ${state}`,
    onclick: () => { toggle(view.hidden, state); keepingFocus(applyFilters); },
  }, stateSign(state), `${state} ${formatNumber(search.counts[state])}`));
  const numShown = model.trials.filter(isShown).length, isAll = !view.hidden.size && !view.brushes.size;
  const colors = model.objectives.length > 1 && make("div", { class: "choice", role: "group", "aria-label": "Colour by" }, model.objectives.map((o, i) => make("button", {
    type: "button", "aria-pressed": String(view.color === i), "data-focus": `color ${i}`, onclick: () => { view.color = i; keepingFocus(render); },
  }, `colour by ${o.label}`)));
  return make("div", { class: "toolbar" }, make("div", { class: "states", role: "group", "aria-label": "States" }, states), colors,
    !isAll && make("span", null, `${formatNumber(numShown)} of ${formatNumber(model.trials.length)} shown`),
    !isAll && make("button", { type: "button", "data-focus": "all", onclick: () => { view.hidden.clear(); view.brushes.clear(); keepingFocus(render); } }, "show all"),
    make("span", { class: "hint quiet" }, "drag along an axis to choose, click a trial to keep it marked"));
}

// ---- pictures ----

const objectiveAxis = (o, room, trials = model.trials) => makeAxis(o.title, trials.map(o.of), { kind: "line", isLog: view.logs[o.id], room, missing: "none" });

function logButton(objectives, axes) {
  if (!axes.every((axis) => axis.canLog)) return null;
  const isLog = axes.some((axis) => axis.isLog);
  return make("button", { type: "button", class: "small", "aria-pressed": String(isLog), title: "Logarithmic axis", "data-focus": `log ${objectives[0].id} ${axes.length}`,
    onclick: () => { objectives.forEach((o) => { view.logs[o.id] = !isLog; }); keepingFocus(render); } }, "log");
}

function planOverTrials(objective) {
  const axis = objectiveAxis(objective, 0.06), numbers = { axis: makeAxis("trial", model.trials.map((t) => t.number), { kind: "line", isLog: false, room: 0.015 }), of: (t) => t.number };
  return pictureOf({
    id: `over ${objective.id}`, title: `${titleOf(objective.label)} over trials`, isWide: model.objectives.length === 1, objective,
    x: numbers, y: { axis, of: objective.of }, trace: traceBest, control: logButton([objective], [axis]),
    legend: model.objectives.length === 1 && make("div", { class: "legend" }, make("span", { class: "line" }, make("i", { class: "trace-key" }), make("span", { class: "name" }, "best so far"))),
    description: `${objective.label} of ${model.trials.length} trials.`,
  }, paintPoints);
}

function planPair(x, y, isWide) {
  const known = model.trials.filter((trial) => trial.values);
  const [xAxis, yAxis] = [objectiveAxis(x, 0.05, known), objectiveAxis(y, 0.06, known)];
  return pictureOf({
    id: `pair ${x.id} ${y.id}`, title: `${y.title} by ${x.title}`, isWide, xObjective: x, x: { axis: xAxis, of: x.of }, y: { axis: yAxis, of: y.of },
    trace: model.objectives.length === 2 ? traceFront : () => "", control: logButton([x, y], [xAxis, yAxis]),
    legend: isWide && make("div", { class: "legend" }, make("span", { class: "line" }, make("i", { class: "trace-key" }), make("span", { class: "name" }, "trials that no other surpasses"))),
    description: `${y.label} by ${x.label} of ${model.trials.length} trials, ${model.best.size} of them on the front.`,
  }, paintPoints);
}

function objectives() {
  const all = model.objectives;
  if (!model.trials.length) return null;
  const pairs = all.length === 2 || all.length === 3 ? all.flatMap((x, i) => all.slice(i + 1).map((y) => planPair(x, y, all.length === 2))) : [];
  return section("objectives", all.length > 1 ? "Objectives" : "Objective", make("div", { class: all.length === 2 ? "grid two" : "grid" }, pairs, all.map(planOverTrials)));
}

function parallel({ search }) {
  const varies = (name) => new Set(model.trials.map((trial) => keyOf(trial.params[name]))).size > 1;
  const names = model.names.filter(varies), same = model.names.filter((name) => !varies(name));
  if (!names.length || model.trials.length < 2) return null;
  const columns = [
    ...names.map((name) => ({ id: `name ${name}`, title: name, of: (t) => t.params[name] })).map((column) => ({ ...column, axis: makeAxis(column.title, model.trials.map(column.of), { kind: search.kinds[column.title] }) })),
    ...model.objectives.map((o) => ({ id: o.id, title: o.title, of: o.of, isObjective: true, axis: objectiveAxis(o, 0) })),
  ];
  for (const [id, brush] of view.brushes) {  // an axis that new trials have changed: what was dragged over is elsewhere now
    const column = columns.find((one) => one.id === id);
    if (!column || column.axis.signature !== brush.axis.signature) view.brushes.delete(id);
  }
  const levels = Array.from({ length: NUM_LEVELS }, (_, i) => make("i", { class: `box level-${i}` }));
  const figure = pictureOf({
    id: "parallel", title: "Values and objective of each trial", isWide: true, columns,
    legend: make("div", { class: "legend" }, make("span", { class: "line" }, make("span", { class: "name" }, "worst"), make("span", { class: "levels" }, levels), make("span", { class: "name" }, `best ${model.objectives[view.color].label}`))),
    notes: same.length > 0 && make("p", { class: "quiet constants" }, `The same in all trials: ${same.map((name) => `${name} ${formatValue(model.trials[0].params[name])}`).join(", ")}.`),
    description: `Parallel coordinates: ${names.join(", ")} and ${model.objectives.map((o) => o.label).join(", ")} of ${model.trials.length} trials.`,
  }, paintLines);
  return section("parallel", "What was tried", figure);
}

// ---- putting it together ----

const BUILDERS = {
  headline, best, toolbar, objectives, parallel, trials: trialTable,
  footer: (shown) => make("footer", { class: "quiet" }, shown.live ? "Live. " : `Written ${formatTime(shown.written)}. `, shown.search.folder),
};
const DRAWN = ["objectives", "parallel", "trials"];

function render() {
  model = prepare(data.search);
  view.color = Math.min(view.color, model.objectives.length - 1);
  const scroll = document.querySelector("#trials .scroll"), top = scroll ? scroll.scrollTop : 0;
  keepingFocus(() => renderParts(Object.keys(BUILDERS)));
  if (top) {
    fillTable();
    document.querySelector("#trials .scroll").scrollTop = top;
  }
  const chosen = view.trial;
  view.trial = null;
  if (chosen !== null) highlight(chosen);
}
