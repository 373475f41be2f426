/* How well each class is predicted: the confusion matrix, the calibration and a table of all classes. */

const MOST_CONFUSIONS = { small: 5, large: 14 };  // named below a matrix
const FEW_CLASSES = 4, MANY_CLASSES = 20;  // with room for names in lines, and with room for small cells only
const ITEMS = { classes: "rows", tokens: "tokens", flags: "rows" };

function classes(shown) {
  if (shown.runs.length > 1) return compareClasses(shown.runs);
  const sets = (shown.runs[0].notes || {}).classes;
  if (!sets) return null;
  const { set, block, controls } = chooseEvaluation("classes", sets);
  return section("classes", "Classes", controls, make("p", { class: "quiet" }, describeClasses(block)), arrangeClasses(set, block));
}

/** The pictures side by side where there is room, and the table of all classes below them or in the place of a matrix. */
function arrangeClasses(set, block) {
  const matrix = confusionMatrix(block), confusions = confusionList(block), curve = reliability(block), all = classTable(set, block);
  const beside = (left) => curve ? make("div", { class: "matrix-and-curve" }, make("div", null, left), curve) : make("div", null, left);
  if (!matrix && !confusions) return beside([all]);
  const isWide = matrix && block.listed.length > MANY_CLASSES;
  return make("div", null, isWide && matrix, beside([!isWide && matrix, confusions]), all);
}

function describeClasses(block) {
  const accuracy = block.num_right / Math.max(1, block.num_items);
  const of = `${formatNumber(block.num_items)} ${ITEMS[block.form]}, ${formatNumber(block.num_classes)} classes, at step ${formatNumber(block.step)}`;
  const right = block.form === "flags" ? "right in every class" : "right";
  const some = block.listed.length < block.num_classes ? ` Listed are the ${block.listed.length} classes with the lowest F1, the most rows or the most confusions.` : "";
  return `${of}: ${percent(accuracy)} ${right}, mean F1 of the classes ${formatNumber(block.macro_f1, 3)}.${some}`;
}

const scoresOf = (block) => block.listed.map((number, i) => {
  const [support, predicted, hits] = [block.support[i], block.predicted[i], block.hits[i]];
  const share = (part, whole) => whole ? part / whole : undefined;
  return {
    number, name: block.names[i], place: i, support, predicted, hits,
    precision: share(hits, predicted), recall: share(hits, support), f1: share(2 * hits, support + predicted),
  };
});

// ---- the confusion matrix ----

/** Rows are the right classes, columns the predicted ones; None where the journal has too few of the numbers. */
function confusionMatrix(block) {
  if (!block.cells || block.listed.length < block.num_classes) return null;
  const chosen = view.sets.classes, isShare = Boolean(chosen.isShare);
  const counts = block.listed.map(() => new Array(block.listed.length).fill(0));
  const places = new Map(block.listed.map((number, i) => [number, i]));
  block.cells.forEach(([right, other, count]) => { counts[places.get(right)][places.get(other)] = count; });
  block.hits.forEach((hits, i) => { counts[i][i] = hits; });
  const button = (value, text) => make("button", {
    type: "button", "aria-pressed": String(isShare === value), "data-focus": `matrix ${text}`,
    onclick: () => { chosen.isShare = value; keepingFocus(() => refresh("classes")); },
  }, text);
  const cell = (row, column) => {
    const count = counts[row][column], share = count / Math.max(1, block.support[row]);
    const told = `${block.names[row]} predicted as ${block.names[column]}: ${formatNumber(count)} of ${formatNumber(block.support[row])}`;
    const shade = Math.sqrt(share);  // so that confusions are seen, which are seldom a large share
    const isHit = row === column;  // numbers in black or white, whichever is at least 4.5 times as light or as dark as the cell
    const kind = `${isHit ? "hit" : "miss"}${shade > (isHit ? 0.585 : 0.565) ? " medium" : ""}${shade > 0.915 ? " strong" : ""}`;
    const properties = { class: kind, title: told };
    if (count) properties.style = { "--share": `${(shade * 100).toFixed(1)}%` };
    return make("td", properties, count ? isShare ? Math.round(share * 100) || "<1" : count < 1e4 ? formatNumber(count) : formatTick(count) : "");
  };
  const head = (name, scope) => make("th", { scope, title: name }, make("span", null, name));
  const rows = block.names.map((name, row) => make("tr", null, head(name, "row"), block.names.map((_, column) => cell(row, column))));
  const few = block.has_all_cells ? null : Math.min(...block.cells.map(([, , count]) => count));
  return make("figure", { class: "chart matrix", id: "matrix" },
    make("figcaption", null, make("h3", null, "Confusion matrix"),
      make("div", { class: "choice", role: "group", "aria-label": "Numbers in the cells" }, button(false, "counts"), button(true, "% of the row"))),
    make("p", { class: "quiet axes-said" }, "Rows: the right class. Columns: what was predicted."),
    make("div", { class: "sideways", tabindex: 0, role: "region", "aria-label": "Confusion matrix" }, make("table", { class: `heat${block.names.length > MANY_CLASSES ? " dense" : block.names.length <= FEW_CLASSES ? " roomy" : ""}`, style: { "max-width": `${12 + 4.6 * Math.max(FEW_CLASSES, block.names.length)}rem` } },
      make("thead", null, make("tr", null, make("td", null), block.names.map((name) => head(name, "col")))), make("tbody", null, rows))),
    few !== null && make("p", { class: "quiet axes-said" }, `Some confusions that came ${few === 1 ? "once" : `${formatNumber(few)} times or less`} are left out.`));
}

/** The most frequent confusions: in words beside a matrix, as a table instead of one. */
function confusionList(block) {
  if (!block.cells || !block.cells.length) return null;
  const nameOf = new Map(block.listed.map((number, i) => [number, block.names[i]]));
  const named = [...block.cells].sort((a, b) => b[2] - a[2]).map(([right, other, count]) => [nameOf.get(right), nameOf.get(other), formatNumber(count)]);
  if (block.listed.length === block.num_classes) {
    const pairs = named.slice(0, MOST_CONFUSIONS[block.listed.length > MANY_CLASSES ? "large" : "small"]).map(([right, other, count]) => make("li", null, make("span", { class: "quiet" }, `${count} × `), make("b", null, right), " taken for ", make("b", null, other)));
    return make("div", { class: "confusions" }, make("h3", null, "Most often confused"), make("ul", null, pairs));
  }
  return make("div", { class: "confusions" }, make("h3", null, "Most often confused"),
    table(["Right class", "Predicted", "Times"], named, { class: "pairs", numeric: [2] }));
}

// ---- calibration ----

/** How often the model was right, by how sure it was: bars below the diagonal are too sure. */
function reliability(block) {
  if (!block.bins) return null;
  const width = 340, box = { left: 44, right: 330, top: 12, bottom: 208 }, floor = 262;
  const x = (share) => box.left + share * (box.right - box.left), y = (share) => box.bottom - share * (box.bottom - box.top);
  const total = block.bins.reduce((sum, [count]) => sum + count, 0), most = Math.max(1, ...block.bins.map(([count]) => count));
  const size = 1 / block.bins.length;
  const bars = block.bins.flatMap(([count, right, confidence], i) => {
    if (!count) return [];
    const share = right / count, left = x(i * size) + 1, wide = x(size) - x(0) - 2, high = count / most * 34;
    const told = `Confidence ${percent(i * size, 2)} to ${percent((i + 1) * size, 2)}, ${percent(confidence)} on average: ${percent(share)} of ${formatNumber(count)} were right`;
    return [draw("g", { class: count < total / 100 ? "few" : "" }, draw("title", null, told),
      draw("rect", { class: "accuracy", x: left, y: y(share), width: wide, height: box.bottom - y(share) }),
      draw("path", { class: "sure", d: `M${left},${y(confidence)}h${wide}` }),
      draw("rect", { class: "count", x: left, y: floor - high, width: wide, height: high }))];
  });
  const ticks = [0, 0.5, 1].flatMap((share) => [
    draw("path", { class: "grid-line", d: `M${box.left},${y(share)}H${box.right}` }),
    draw("text", { x: box.left - 6, y: y(share) + 4, "text-anchor": "end" }, percent(share)),
    draw("text", { x: x(share), y: floor + 15, "text-anchor": ["start", "middle", "end"][share * 2] }, percent(share)),
  ]);
  return make("figure", { class: "chart reliability", id: "calibration" }, make("figcaption", null, make("h3", null, "Calibration")),
    make("p", { class: "quiet axes-said" }, "Bars: how often it was right. Lines: how sure it was. The diagonal is where both would be the same."),
    draw("svg", { viewBox: `0 0 ${width} ${floor + 38}`, role: "img", "aria-label": describeCalibration(block) }, ticks, bars,
      draw("path", { class: "diagonal", d: `M${x(0)},${y(0)}L${x(1)},${y(1)}` }),
      draw("text", { x: (box.left + box.right) / 2, y: floor + 32, "text-anchor": "middle" }, "confidence; below the bars: how many")),
    make("p", { class: "axes-said" }, describeCalibration(block)));
}

function describeCalibration(block) {
  const total = block.bins.reduce((sum, [count]) => sum + count, 0) || 1;
  const gap = block.bins.reduce((sum, [count, right, confidence]) => sum + count * confidence - right, 0) / total;
  const points = formatNumber(block.calibration_error * 100, 2);
  const way = Math.abs(gap) < 0.01 ? "in the mean neither too sure nor too unsure" : gap > 0 ? "it is surer than it should be" : "it is right more often than it is sure";
  return `Calibration error (ECE) ${formatNumber(block.calibration_error, 3)}: confidence and accuracy are ${points} ${points === "1" ? "point" : "points"} apart on average; ${way}.`;
}

// ---- all classes ----

function classTable(set, block) {
  const rows = scoresOf(block), { steps, f1 } = set.history || { steps: [], f1: [] };
  const places = new Map(set.latest.listed.map((number, i) => [number, i]));
  const score = (id, head) => ({ id, head, of: (row) => row[id], cell: (row) => row[id] === undefined ? "–" : row[id].toFixed(3) });
  const columns = [
    { id: "name", head: "Class", of: (row) => row.name, cell: (row) => make("span", { class: "class-name" }, row.name), isText: true },
    { ...score("f1", "F1"), of: (row) => row.support ? row.f1 : undefined },  // one that does not occur cannot be found: it comes last
    score("precision", "Precision"), score("recall", "Recall"),
    { id: "support", head: "Support", of: (row) => row.support, cell: (row) => formatNumber(row.support), isDown: true },
    { id: "predicted", head: "Predicted", of: (row) => row.predicted, cell: (row) => formatNumber(row.predicted), isDown: true },
  ];
  if (steps.length > 1) {
    const line = (row) => f1[places.get(row.number)] || [];
    columns.push({ head: `F1, step ${formatNumber(steps[0])} to ${formatNumber(steps[steps.length - 1])}`, isText: true, cell: (row) => sparkline(line(row), 1000, `F1 of ${row.name} over the run`) });
  }
  const built = sortedTable("classes", columns, rows, "f1");
  if (rows.length > 14) built.classList.add("tall");
  return make("div", { class: "all-classes" }, built);
}

/** The F1 of each class in several runs, those with the lowest first. */
function compareClasses(runs) {
  const sets = runs.map((run) => (run.notes || {}).classes || []), names = sets.flat().map(({ name }) => name);
  const times = (name) => names.filter((other) => other === name).length;
  const shared = names.reduce((most, name) => times(name) > times(most) ? name : most, names[0]);  // a comparison is of one set
  const found = sets.map((all) => all.find(({ name }) => name === shared));
  if (found.filter(Boolean).length < 2) return null;
  const blocks = found.map((set) => set && (set.best || set.latest));
  const byName = new Map();
  blocks.forEach((block, i) => block && scoresOf(block).forEach((row) => {
    if (!byName.has(row.name)) byName.set(row.name, { name: row.name, f1: [] });
    byName.get(row.name).f1[i] = row.f1;
  }));
  if (![...byName.values()].some((row) => row.f1.filter((value) => value !== undefined).length > 1)) return null;
  const columns = [
    { id: "name", head: "Class", of: (row) => row.name, cell: (row) => make("span", { class: "class-name" }, row.name), isText: true },
    ...runs.map((run, i) => ({ id: `run ${i}`, head: run.label, of: (row) => row.f1[i], cell: (row) => row.f1[i] === undefined ? "–" : row.f1[i].toFixed(3) })),
  ];
  const built = sortedTable("classes", columns, [...byName.values()], `run ${found.findIndex(Boolean)}`);
  if (byName.size > 14) built.classList.add("tall");
  const where = names.some((name) => name !== shared) ? ` of ${shared}` : "";
  return section("classes", "Classes", make("p", { class: "quiet" }, `F1 of each class in the best evaluation${where} of each run.`), built);
}
