/* The page of all runs below a folder: a table of them; those that are chosen in it are compared. */

const MAX_CHOSEN = 8;  // as many lines as there are colours
const STATUS_CLASSES = { running: "running", finished: "finished", failed: "stopped", killed: "stopped", damaged: "stopped" };
const STATUS_ORDER = ["running", "silent", "finished", "stopped", "failed", "killed", "unfinished", "evaluated", "damaged"];
const renderRuns = render;
const chosen = new Set();  // paths, in the order of their colours
let whole = null, part = null;  // the data of all runs, and of the chosen ones
view.sort = null;

/** The columns: a head, the value to sort by, what the cell shows; `isDown`: a click puts the largest first. */
const COLUMNS = [
  { id: "chosen", head: "", of: (row) => chosen.has(row.path) ? 0 : 1, cell: choiceCell },
  { id: "name", head: "Run", of: (row) => labelOf(row), cell: nameCell },
  { id: "status", head: "Status", of: (row) => STATUS_ORDER.indexOf(row.status), cell: statusCell },
  { id: "step", head: "Step", of: (row) => row.step, cell: stepCell, kind: "number", isDown: true },
  { id: "loss", head: "Loss", of: (row) => row.loss ?? undefined, cell: (row) => formatNumber(row.loss, 4), kind: "number" },
  { id: "best", head: "Best", of: (row) => row.best ?? undefined, cell: bestCell, kind: "number" },
  { id: "age", head: "Last sign", of: (row) => row.last_time === null ? undefined : -row.last_time, cell: ageCell, kind: "number" },
  { id: "size", head: "Size", of: (row) => row.size_bytes, cell: (row) => `${row.size_is_whole ? "" : "over "}${formatSize(row.size_bytes)}`, kind: "number", isDown: true },
];

const labelOf = (row) => row.path === "." ? row.name : row.path;

function choiceCell(row) {
  const isOn = chosen.has(row.path), isFull = !isOn && chosen.size >= MAX_CHOSEN, isLast = isOn && chosen.size === 1;
  return make("label", { class: "pick", style: isOn ? { "--line": color([...chosen].indexOf(row.path)) } : {} }, make("input", {
    type: "checkbox", checked: isOn, disabled: isFull || isLast, "data-focus": `run ${row.path}`, "aria-label": `Compare ${labelOf(row)}`,
    title: isFull ? `${MAX_CHOSEN} runs are compared at most: leave one out first` : "Compare",
    onchange: () => { toggle(chosen, row.path); render(); },
  }));
}

function nameCell(row) {
  const name = row.path.split("/").flatMap((piece, i) => [...(i ? ["/", make("wbr")] : []), ...breakable(piece)]);
  const shown = row.path === "." ? [row.name] : name;
  return [row.link ? make("a", { href: row.link }, shown) : make("span", null, shown),
    ...row.notes.map((note) => make("div", { class: "problem" }, note))];
}

function statusCell(row) {
  return [make("span", { class: `status ${STATUS_CLASSES[row.status] || ""}` }, row.status),
    row.detail && make("div", { class: "detail quiet" }, row.detail)];
}

function stepCell(row) {
  if (!row.max_steps) return formatNumber(row.step);
  const share = Math.min(1, row.step / row.max_steps);
  return [`${formatNumber(row.step)} of ${formatNumber(row.max_steps)}`,
    make("div", { class: "share" }, make("div", { style: { width: `${share * 100}%` } }))];
}

function bestCell(row) {
  if (row.best === null) return "–";
  return [formatNumber(row.best, 4), make("div", { class: "detail quiet" }, `${row.best_name} at ${formatNumber(row.best_step)}`)];
}

function ageCell(row) {
  if (row.last_time === null) return "–";
  const age = Math.max(0, Date.now() / 1000 - row.last_time);  // another machine's clock may be ahead
  return make("time", { title: formatTime(row.last_time) }, age < 5 ? "now" : `${formatAge(age)} ago`);
}

function formatAge(seconds) {
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([length]) => seconds >= length);
  return `${formatNumber(Math.floor(seconds / size))} ${unit}`;
}

// ---- the parts ----

function overviewHead(shown) {
  const counts = STATUS_ORDER.map((status) => [status, shown.rows.filter((row) => row.status === status).length]).filter(([, count]) => count);
  return make("header", { class: "top" },
    make("h1", null, shown.rows.length === 1 ? "1 run" : `${formatNumber(shown.rows.length + shown.num_left_out)} runs`),
    make("p", { class: "counts" }, counts.map(([status, count]) => make("span", { class: `status ${STATUS_CLASSES[status] || ""}` }, `${formatNumber(count)} ${status}`))),
    !shown.rows.length && make("p", { class: "quiet" }, "There is no run below this folder yet."),
    !shown.is_whole && make("p", { class: "problem" }, "There are more files below this folder than are looked at. Give a folder inside it."));
}

function overviewTable(shown) {
  if (!shown.rows.length) return null;
  const built = table(COLUMNS.map((column) => column.head), sortedRows(shown).map((row) => COLUMNS.map((column) => column.cell(row))),
    { class: "overview", numeric: COLUMNS.flatMap((column, i) => column.kind ? [i] : []) });
  built.classList.add("tall");
  built.querySelectorAll("th").forEach((th, i) => th.replaceChildren(sortHead(th, COLUMNS[i])));
  built.querySelectorAll("td:first-child").forEach((td) => td.setAttribute("data-head", "Compare"));
  return make("section", { id: "runs" }, built,
    shown.num_left_out > 0 && make("p", { class: "quiet" }, `${formatNumber(shown.num_left_out)} further runs are left out here; the command lists them all.`),
    make("p", { class: "quiet hint-below" }, `Below: the marked runs, ${MAX_CHOSEN} at most, from about ${shown.num_points} of the logs of each. A run's own page has all.`));
}

function sortHead(th, column) {
  if (view.sort.id === column.id) th.setAttribute("aria-sort", view.sort.isDown ? "descending" : "ascending");
  return make("button", { type: "button", class: "sort", "data-focus": `sort ${column.id}`, "aria-label": column.head || "Marked runs", onclick: () => {
    const isSame = view.sort.id === column.id;
    view.sort = { id: column.id, isDown: isSame ? !view.sort.isDown : Boolean(column.isDown) };
    keepingFocus(() => refresh("overview"));
  } }, column.head);
}

function sortedRows(shown) {
  const column = COLUMNS.find(({ id }) => id === view.sort.id), way = view.sort.isDown ? -1 : 1;
  const isUntouched = view.sort.isGiven;  // as the command sorted them
  return isUntouched ? shown.rows : shown.rows.map((row) => ({ row, value: column.of(row) })).sort((a, b) => compareValues(a.value, b.value, way)).map(({ row }) => row);
}

const { headline: _, ...others } = BUILDERS;  // that of a few runs
Object.keys(BUILDERS).forEach((name) => delete BUILDERS[name]);
Object.assign(BUILDERS, { headline: overviewHead, overview: overviewTable, errors: (shown) => make("div", null, shown.runs.map((run) => alerts(run, true))), ...others,
  footer: (shown) => make("footer", { class: "quiet" }, shown.live ? "Live. " : `Written ${formatTime(shown.written)}. `, shown.root, make("br"), "Curves by uPlot 1.6.32, © Leon Sorokin, MIT licence.") });

/** The chosen runs in the form of the page that compares runs. */
function choosePart() {
  if (data !== part) whole = data;
  const paths = whole.rows.map((row) => row.path);
  for (const path of [...chosen]) if (!paths.includes(path)) chosen.delete(path);
  if (!chosen.size) paths.filter((_, i) => whole.runs[i].curves.length).slice(0, MAX_CHOSEN).forEach((path) => chosen.add(path));
  if (!chosen.size && paths.length) chosen.add(paths[0]);
  view.sort ??= { id: whole.sort, isDown: Boolean((COLUMNS.find(({ id }) => id === whole.sort) || {}).isDown), isGiven: true };
  part = data = { ...whole, runs: [...chosen].map((path) => whole.runs[paths.indexOf(path)]) };
}

render = () => {
  choosePart();
  const scroll = document.querySelector("#runs .scroll"), top = scroll ? scroll.scrollTop : 0;
  if (data.runs.length) keepingFocus(renderRuns);
  else renderParts(["headline", "overview", "footer"]);
  if (top) document.querySelector("#runs .scroll").scrollTop = top;
};
