/* The table of all trials: sorted by any column, and marked together with the pictures. */

const FIRST_ROWS = 100;  // built at once; the others when the pictures can be seen
let rows = new Map();  // the row of each trial
let fillTable = () => {};  // builds the rows that are still missing

/** The columns: a head, the value to sort by, what the cell shows, and the class of its cells. */
function tableColumns() {
  const isNumber = (name) => model.trials.every((t) => !(name in t.params) || typeof t.params[name] === "number");
  return [
    { id: "trial", head: "Trial", of: (t) => t.number, cell: trialLink, kind: "number" },
    { id: "state", head: "State", of: (t) => STATES.indexOf(t.state), cell: stateBadges },
    ...model.objectives.map((o) => ({ id: o.id, head: o.label, of: o.of, cell: (t) => formatObjective(o.of(t)), kind: "number", isMax: o.isMax })),
    ...model.names.map((name) => ({ id: `name ${name}`, head: name, of: (t) => t.params[name], isName: true, kind: isNumber(name) ? "number code" : "code",
      cell: (t) => name in t.params ? formatValue(t.params[name]) : "–" })),
    { id: "step", head: "Step", of: (t) => t.step ?? undefined, cell: (t) => formatNumber(t.step), kind: "number" },
    { id: "time", head: "Time", of: (t) => t.seconds, cell: (t) => formatDuration(t.seconds), kind: "number" },
    ...(model.trials.some((t) => t.error) ? [{ id: "error", head: "Error", of: (t) => t.error ?? undefined, cell: (t) => t.error && make("span", { class: "error-text", title: t.error }, t.error) }] : []),
  ];
}

/** The number of a trial, which leads to its own page. */
function trialLink(trial) {
  const properties = { "data-focus": `trial ${trial.number}`, "aria-label": describeTrial(trial) };
  return trial.link ? make("a", { href: trial.link, ...properties }, String(trial.number)) : make("span", { tabindex: 0, ...properties }, String(trial.number));
}

const SIGNS = { complete: "●", pruned: "◇", failed: "✕" };

function stateBadges(trial) {
  return [make("span", { class: `state ${trial.state}` }, `${SIGNS[trial.state]} ${trial.state}`),
    model.best.has(trial.number) && make("span", { class: "badge best" }, "best")];
}

const stateSign = (state) => draw("svg", { class: "state-sign", width: 26, height: 12, "aria-hidden": "true" },
  draw("path", { class: `trial ${state}`, d: "M0,6H26" }), draw("path", { class: `sign ${state}`, d: shapeOf(state, 13, 6, 3.6) }));

const describeTrial = (trial) => `Trial ${trial.number}, ${trial.state}, ${model.objectives.map((o) => `${o.label} ${formatObjective(o.of(trial))}`).join(", ")}`;

function trialTable({ search }) {
  if (!model.trials.length) return null;
  const columns = tableColumns(), first = model.objectives.length === 1 ? model.objectives[0] : null;
  const built = table(columns.map((column) => column.head), [], { class: "trials", numeric: columns.flatMap((column, i) => /number/.test(column.kind) ? [i] : []) });
  built.classList.add("tall");
  built.querySelectorAll("th").forEach((th, i) => th.replaceChildren(sortButton(built, columns, columns[i])));
  const body = built.querySelector("tbody");
  body.addEventListener("pointerover", (event) => highlightRow(event.target));
  body.addEventListener("pointerleave", () => highlight(null));
  body.addEventListener("focusin", (event) => { highlightRow(event.target); view.focused = view.trial; });
  body.addEventListener("focusout", () => { view.focused = null; highlight(null); });
  view.sort ??= first ? { id: first.id, isDown: first.isMax } : { id: "trial", isDown: false };
  rows = new Map();
  fillTable = () => sortRows(built, columns);
  sortRows(built, columns, FIRST_ROWS);
  if (rows.size < model.trials.length) setTimeout(() => { if (built.isConnected && rows.size < model.trials.length) fillTable(); });
  const numLeftOut = Object.values(search.counts).reduce((a, b) => a + b, 0) - search.trials.length;
  return section("trials", "Trials", built,
    numLeftOut > 0 && make("p", { class: "quiet" }, `The ${formatNumber(numLeftOut)} earliest trials are left out here and in the pictures; search/trials.jsonl has them.`),
    search.num_names_left_out > 0 && make("p", { class: "quiet" }, `${formatNumber(search.num_names_left_out)} further names are left out; search/trials.jsonl has them.`));
}

function rowOf(trial, columns) {
  if (!rows.has(trial.number)) {
    rows.set(trial.number, make("tr", { "data-trial": trial.number }, columns.map((column) => make("td", { class: column.kind }, column.cell(trial)))));
  }
  return rows.get(trial.number);
}

/** The head of a column: a click sorts by it, the best first, and a second one the other way round. */
function sortButton(built, columns, column) {
  return make("button", { type: "button", class: "sort", "data-focus": `sort ${column.id}`, onclick: () => {
    const isSame = view.sort.id === column.id;
    view.sort = { id: column.id, isDown: isSame ? !view.sort.isDown : Boolean(column.isMax) };
    sortRows(built, columns);
  } }, column.isName ? make("code", { title: column.head }, wrapName(column.head, 20).flatMap((line, i) => i ? [make("br"), line] : [line])) : column.head);
}

/** Put the rows in their order, at most so many of them. */
function sortRows(built, columns, limit = Infinity) {
  const column = columns.find(({ id }) => id === view.sort.id) || columns[0], way = view.sort.isDown ? -1 : 1;
  const sorted = model.trials.map((trial) => ({ trial, value: column.of(trial) })).sort((a, b) => compareValues(a.value, b.value, way) || a.trial.number - b.trial.number);
  built.querySelector("tbody").append(...sorted.slice(0, limit).map(({ trial }) => rowOf(trial, columns)));
  built.querySelectorAll("th").forEach((th, i) => {
    if (columns[i] === column) th.setAttribute("aria-sort", way > 0 ? "ascending" : "descending"); else th.removeAttribute("aria-sort");
  });
  filterRows();
}

function highlightRow(target) {
  const row = target.closest("tr[data-trial]");
  if (row) highlight(Number(row.dataset.trial));
}

/** Mark the row of a trial; one that was chosen in a picture is brought into view inside the table. */
function markRow(trial, shouldScroll) {
  for (const row of document.querySelectorAll("tr.chosen")) row.classList.remove("chosen");
  const row = trial && rows.get(trial.number);
  if (!row) return;
  row.classList.add("chosen");
  const scroll = row.closest(".scroll");
  if (shouldScroll && scroll) scroll.scrollTop = row.offsetTop - scroll.clientHeight / 2;
}

function filterRows() {
  model.trials.forEach((trial) => { const row = rows.get(trial.number); if (row) row.hidden = !isShown(trial); });
}
