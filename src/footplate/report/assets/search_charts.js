/* Pictures of trials: points by their objectives, and a line for each trial across an axis for each name. */

const NUM_LEVELS = 7;  // colours from the worst objective to the best
const STATES = ["complete", "pruned", "failed"];
const REACH = { points: 28, lines: 14 };  // how near, in pixels, the pointer must come
const TICK_FONT = 6.3;  // the width of a character of 11 pixels, about

// ---- what the pictures share ----

/** A figure with a picture that pointer and arrow keys choose trials in; paint(holder) returns what is drawn. */
function pictureOf(plan, paint) {
  const holder = make("div", { class: "plot picture", tabindex: 0, role: "group", "aria-roledescription": "chart",
    "aria-label": `${plan.description} Left and right arrow keys go from trial to trial.`, "data-focus": plan.id });
  const said = make("output", { class: "quiet said", "aria-hidden": "true" });
  const figure = make("figure", { class: `chart${plan.isWide ? " wide" : ""}`, "data-picture": plan.id },
    make("figcaption", null, make("h3", null, plan.title), said, plan.control), plan.legend, make("div", { class: "sideways" }, holder), plan.notes);
  figure.draw = () => {
    const painted = paint(holder, plan);
    const tip = make("div", { class: "tip", hidden: true });
    holder.append(tip);
    follow(holder, painted);
    return { ...painted, holder, tip, said, destroy: () => {} };
  };
  return figure;
}

/** Let the pointer and the keys choose trials in a picture. */
function follow(holder, painted) {
  const find = (event) => {
    const box = holder.getBoundingClientRect();
    return painted.find(event.clientX - box.left, event.clientY - box.top);
  };
  holder.addEventListener("pointermove", (event) => { if (!view.isBrushing) highlight(find(event), holder); });
  holder.addEventListener("pointerleave", () => highlight(null));
  holder.addEventListener("click", (event) => { view.pinned = find(event); highlight(view.pinned, holder); });
  holder.addEventListener("blur", () => { view.focused = null; highlight(null); });
  holder.addEventListener("keydown", (event) => walk(event, holder));
}

/** Arrow keys go from trial to trial in the order of their numbers. */
function walk(event, holder) {
  const shown = model.trials.filter(isShown), at = shown.findIndex((trial) => trial.number === view.trial);
  const steps = { ArrowRight: at + 1, ArrowLeft: at < 0 ? shown.length - 1 : at - 1, Home: 0, End: shown.length - 1 };
  if (event.key === "Escape") { view.pinned = view.focused = null; highlight(null); }
  if (!(event.key in steps) || !shown.length) return;
  event.preventDefault();
  const trial = shown[Math.max(0, Math.min(shown.length - 1, steps[event.key]))];
  view.focused = trial.number;
  highlight(trial.number, holder);
  announcer.textContent = describeTrial(trial);
}

const announcer = make("p", { class: "only-heard", role: "status" });

/** Mark one trial in all pictures and in the table; null for the one that the keyboard is at or that was clicked, or none. */
function highlight(number, holder = null) {
  const chosen = number ?? view.focused ?? view.pinned;
  if (chosen === view.trial && holder === view.holder) return;
  view.trial = chosen;
  view.holder = holder;
  const trial = model.byNumber.get(chosen) || null;
  for (const chart of charts) {
    chart.holder.classList.toggle("has-one", trial !== null);
    chart.mark(trial);
    chart.said.textContent = trial ? `trial ${trial.number} · ${trial.state}` : "";
    showTip(chart, trial && chart.holder === holder ? trial : null);
  }
  markRow(trial, holder !== null);
}

/** What a trial is, beside its point. */
function showTip(chart, trial) {
  const { tip, holder } = chart, place = trial && chart.place && chart.place(trial);
  tip.hidden = !place;
  if (!place) return;
  const row = (name, value) => make("div", { class: "row" }, make("span", { class: "name" }, name), make("b", null, value));
  const names = Object.keys(trial.params);
  tip.replaceChildren(make("div", { class: "at" }, `trial ${trial.number} · ${trial.state}`),
    ...model.objectives.map((objective) => row(objective.label, formatObjective(objective.of(trial)))),
    ...names.slice(0, 8).map((name) => row(shorten(name, 32), shorten(formatValue(trial.params[name]), 32))),
    names.length > 8 ? make("div", { class: "at" }, `and ${names.length - 8} more`) : "");
  const isLeft = place.x > holder.clientWidth / 2;
  tip.style.left = isLeft ? "auto" : `${place.x + 14}px`;
  tip.style.right = isLeft ? `${holder.clientWidth - place.x + 14}px` : "auto";
  tip.style.top = `${Math.max(0, Math.min(place.y - tip.offsetHeight / 2, holder.clientHeight - tip.offsetHeight))}px`;
}

/** Show again which trials pass the filters. */
function applyFilters() {
  charts.forEach((chart) => chart.filter());
  filterRows();
  refresh("toolbar");
}

const isShown = (trial) => !view.hidden.has(trial.state)
  && [...view.brushes.values()].every(({ axis, of, from, to }) => axis.at(of(trial)) >= from && axis.at(of(trial)) <= to);
const shorten = (text, length) => text.length > length ? `${text.slice(0, length - 1)}…` : text;
const formatObjective = (value) => value === undefined ? "–" : formatNumber(value);
const levelOf = (trial) => { const level = model.levels[view.color].get(trial.number); return level === undefined ? "no-level" : `level-${level}`; };

/** A sign for a trial that says its state by its shape. */
function shapeOf(state, x, y, r) {
  if (state === "failed") return `M${x - r},${y - r}L${x + r},${y + r}M${x - r},${y + r}L${x + r},${y - r}`;
  if (state === "pruned") return `M${x},${y - r * 1.3}L${x + r * 1.3},${y}L${x},${y + r * 1.3}L${x - r * 1.3},${y}Z`;
  return `M${x - r},${y}A${r},${r} 0 1 1 ${x + r},${y}A${r},${r} 0 1 1 ${x - r},${y}Z`;
}

// ---- points ----

/** Points of trials on two axes, and the line of the best. plan: id, title, x and y ({axis, of}), trace. */
function paintPoints(holder, plan) {
  const width = Math.max(holder.clientWidth, 200), height = plan.isWide ? 280 : 220;
  const { x, y } = plan, widest = Math.max(3, ...y.axis.ticks.map((tick) => shorten(tick.label, 14).length));
  const box = { left: 14 + TICK_FONT * widest, right: width - 18, top: 10, bottom: height - 40 };
  const px = (trial) => box.left + x.axis.at(x.of(trial)) * (box.right - box.left);
  const py = (trial) => box.bottom - y.axis.at(y.of(trial)) * (box.bottom - box.top);
  const places = new Map(model.trials.map((trial) => [trial.number, { x: px(trial), y: py(trial) }]));
  const size = model.trials.length > 300 ? 2.5 : 4;
  const isThere = (trial) => x.of(trial) !== undefined;  // every trial has a number, and not every one an objective
  const signs = model.trials.map((trial) => {
    const at = places.get(trial.number), isBest = model.best.has(trial.number);
    return draw("path", { class: `sign ${trial.state}${isBest ? " best" : ""}`, d: isThere(trial) ? shapeOf(trial.state, at.x, at.y, isBest ? size + 1.5 : size) : "" });
  });
  const marked = draw("g", { class: "marked" });
  holder.replaceChildren(draw("svg", { width, height, "aria-hidden": "true" }, pointAxes(plan, box, width, height),
    draw("path", { class: "trace", d: plan.trace(plan, places, box) }), draw("g", { class: "all" }, signs), marked));
  const filter = () => model.trials.forEach((trial, i) => signs[i].classList.toggle("off", !isShown(trial)));
  filter();
  return {
    filter,
    find: (left, top) => findPoint(model.trials.filter(isThere), places, left, top),
    place: (trial) => isThere(trial) && places.get(trial.number),
    mark: (trial) => marked.replaceChildren(...(trial && isThere(trial) ? ring(places.get(trial.number), trial) : [])),
  };
}

function pointAxes({ x, y }, box, width, height) {
  const left = (tick) => box.left + tick.at * (box.right - box.left), top = (tick) => box.bottom - tick.at * (box.bottom - box.top);
  const line = (x1, y1, x2, y2) => draw("line", { class: "grid-line", x1, y1, x2, y2 });
  const apart = x.axis.ticks.length * 52 > width - box.left ? 2 : 1;  // labels need room
  return draw("g", { class: "axes" },
    y.axis.ticks.map((tick) => [line(box.left, top(tick), box.right, top(tick)),
      draw("text", { x: box.left - 8, y: top(tick) + 4, "text-anchor": "end" }, shorten(tick.label, 14))]),
    x.axis.ticks.filter((_, i) => i % apart === 0).map((tick) => [line(left(tick), box.top, left(tick), box.bottom),
      draw("text", { x: left(tick), y: box.bottom + 17, "text-anchor": "middle" }, shorten(tick.label, 10))]),
    draw("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, x.axis.name));
}

function ring({ x, y }, trial) {
  return [draw("circle", { class: "ring", cx: x, cy: y, r: 9 }),
    draw("path", { class: `sign ${trial.state}`, d: shapeOf(trial.state, x, y, 4.5) })];
}

function findPoint(trials, places, left, top) {
  let best = null, nearestSoFar = REACH.points ** 2;
  for (const trial of trials) {
    const at = places.get(trial.number), distance = (at.x - left) ** 2 + (at.y - top) ** 2;
    if (distance < nearestSoFar && isShown(trial)) [best, nearestSoFar] = [trial.number, distance];
  }
  return best;
}

/** The best complete trial up to each one, as steps. */
function traceBest({ y, objective }, places, box) {
  let path = "", best = null;
  for (const trial of model.trials) {
    const value = y.of(trial);
    if (trial.state !== "complete" || !Number.isFinite(value) || (best !== null && !objective.isBetter(value, best))) continue;
    const at = places.get(trial.number);
    path += best === null ? `M${at.x},${at.y}` : `H${at.x}V${at.y}`;
    best = value;
  }
  return path && `${path}H${box.right}`;
}

/** Steps along the trials that no other one surpasses. */
function traceFront({ xObjective }, places) {
  const front = model.trials.filter((trial) => model.best.has(trial.number)).map((trial) => places.get(trial.number)).sort((a, b) => a.x - b.x || b.y - a.y);
  return front.map((at, i) => i === 0 ? `M${at.x},${at.y}` : xObjective.isMax ? `V${at.y}H${at.x}` : `H${at.x}V${at.y}`).join("");
}

// ---- parallel coordinates ----

/** A line for each trial. plan: columns ({axis, of, title}), the objectives last. */
function paintLines(holder, plan) {
  const isPaper = document.documentElement.classList.contains("paper"), { columns } = plan;
  const room = holder.parentElement.clientWidth, apart = isPaper ? 0 : 98;
  const width = Math.max(room, 150 + apart * (columns.length - 1)), height = 360;
  const box = { left: 74, right: width - 76, top: 58, bottom: height - 14 };
  holder.style.width = `${width}px`;
  const left = (i) => columns.length > 1 ? box.left + i / (columns.length - 1) * (box.right - box.left) : width / 2;
  const top = (place) => box.bottom - place * (box.bottom - box.top);
  const ys = new Map(model.trials.map((trial) => [trial.number, columns.map(({ axis, of }) => top(axis.at(of(trial))))]));
  const path = (trial) => ys.get(trial.number).map((y, i) => `${i ? "L" : "M"}${left(i).toFixed(1)},${y.toFixed(1)}`).join("");
  const lines = model.worstFirst[view.color].map((trial) => ({ trial, line: draw("path", { class: `trial ${trial.state} ${levelOf(trial)}`, d: path(trial) }) }));
  const marked = draw("g", { class: "marked" });
  holder.replaceChildren(draw("svg", { width, height, "aria-hidden": "true" },
    draw("g", { class: model.trials.length > 150 ? "all many" : "all" }, lines.map(({ line }) => line)),
    columns.map((column, i) => columnAxis(holder, column, left(i), box)), marked));
  const filter = () => lines.forEach(({ trial, line }) => line.classList.toggle("off", !isShown(trial)));
  filter();
  return {
    filter,
    find: (x, y) => findLine(ys, (x - left(0)) / ((left(columns.length - 1) - left(0)) || 1) * (columns.length - 1), y),
    mark: (trial) => marked.replaceChildren(...(trial ? markLine(trial, plan, path(trial), ys.get(trial.number), left) : [])),
  };
}

/** The trial whose line is nearest above or below a place; `at` counts axes, 1.5 is between the second and the third. */
function findLine(ys, at, y) {
  let best = null, nearestSoFar = REACH.lines;
  for (const trial of model.trials) {
    const all = ys.get(trial.number), from = Math.max(0, Math.min(all.length - 2, Math.floor(at))), part = Math.max(0, Math.min(1, at - from));
    const distance = Math.abs(all[from] + ((all[from + 1] ?? all[from]) - all[from]) * part - y);
    if (distance < nearestSoFar && isShown(trial)) [best, nearestSoFar] = [trial.number, distance];
  }
  return best;
}

/** The chosen line on top of all, with its values. */
function markLine(trial, { columns }, d, ys, left) {
  return [draw("path", { class: "halo", d }), draw("path", { class: `trial ${trial.state} ${levelOf(trial)}`, d }),
    ...columns.flatMap(({ of }, i) => {
      const value = of(trial), text = value === undefined ? "–" : typeof value === "number" ? formatNumber(value) : formatValue(value);
      return [draw("circle", { cx: left(i), cy: ys[i], r: 3.5 }),
        draw("text", { x: left(i) + 8, y: ys[i] - 6 }, shorten(text, 14))];
    })];
}

/** An axis with its name, its labels and what was dragged over on it. */
function columnAxis(holder, column, x, box) {
  const { axis } = column, top = (place) => box.bottom - place * (box.bottom - box.top);
  const brush = view.brushes.get(column.id);
  const chosen = draw("rect", { class: "brush", x: x - 8, width: 16, y: brush ? top(brush.to) : 0, height: brush ? top(brush.from) - top(brush.to) : 0 });
  const handle = draw("rect", { class: "handle", x: x - 14, width: 28, y: box.top - 6, height: box.bottom - box.top + 12 });
  handle.addEventListener("pointerdown", (event) => startBrush(event, holder, column, chosen, box));
  const lines = wrapName(column.title);
  return draw("g", { class: `column${column.isObjective ? " objective" : ""}` }, draw("title", null, column.title),
    lines.map((line, i) => draw("text", { class: "head", x, y: box.top - 14 - 13 * (lines.length - 1 - i), "text-anchor": "middle" }, line)),
    draw("line", { class: "axis", x1: x, x2: x, y1: box.top, y2: box.bottom }),
    axis.ticks.map((tick) => [draw("line", { class: "axis", x1: x - 4, x2: x, y1: top(tick.at), y2: top(tick.at) }),
      draw("text", { x: x - 8, y: top(tick.at) + 4, "text-anchor": "end" }, shorten(tick.label, 11))]),
    chosen, handle);
}

/** A long name in up to three lines, broken where one word of it ends. */
function wrapName(name, length = 15) {
  const lines = [""];
  for (const word of name.match(/[^_.\s]*[_.\s]?/g).filter(Boolean)) {
    if (lines[lines.length - 1] && (lines[lines.length - 1] + word).length > length) lines.push("");
    lines[lines.length - 1] += word;
  }
  const kept = lines.slice(0, 3);
  if (lines.length > 3) kept[2] += "…";
  return kept.map((line) => shorten(line, length + 1));
}

/** Dragging along an axis keeps the trials that pass there; a click on it lets all pass again. */
function startBrush(event, holder, column, chosen, box) {
  if (event.pointerType === "touch" || event.button !== 0) return;  // there, dragging scrolls
  event.preventDefault();
  const handle = event.currentTarget, origin = holder.getBoundingClientRect().top, start = event.clientY - origin;
  const place = (y) => Math.max(0, Math.min(1, (box.bottom - y) / (box.bottom - box.top)));
  const clamp = (y) => Math.max(box.top, Math.min(box.bottom, y));
  view.isBrushing = true;
  handle.setPointerCapture(event.pointerId);
  handle.onpointermove = (moved) => {
    const y = moved.clientY - origin, [high, low] = [clamp(Math.min(start, y)), clamp(Math.max(start, y))];
    chosen.setAttribute("y", high);
    chosen.setAttribute("height", low - high);
    // the ends stay inside even where dragging began or ended a hair beyond them
    view.brushes.set(column.id, { axis: column.axis, of: column.of, from: place(low) - 1e-9, to: place(high) + 1e-9 });
    charts.forEach((chart) => chart.filter());
  };
  handle.onpointerup = (ended) => {
    handle.onpointermove = handle.onpointerup = null;
    if (Math.abs(ended.clientY - origin - start) < 4) { view.brushes.delete(column.id); chosen.setAttribute("height", 0); }
    applyFilters();
    setTimeout(() => { view.isBrushing = false; });  // after the click that follows
  };
}
