/* What sections on evaluation sets share: the choice of set and evaluation, and tables to sort. */

view.sets = {};  // by section: the set and the evaluation that are shown, and how its table is sorted

const percent = (share, digits = 3) => `${formatNumber(share * 100, digits)} %`;

/** The set and the evaluation that a section shows, and the controls to choose others. */
function chooseEvaluation(id, sets) {
  const chosen = view.sets[id] ??= { set: null, isBest: false };
  const set = sets.find(({ name }) => name === chosen.set) || sets[0];
  const { latest, best } = set, canChoose = best && best.step !== latest.step;
  const block = canChoose && chosen.isBest ? best : latest;
  const button = (isBest, text, title) => make("button", {
    type: "button", "aria-pressed": String((block === best) === isBest), title, "data-focus": `${id} ${isBest}`,
    onclick: () => { chosen.isBest = isBest; keepingFocus(() => refresh(id)); },
  }, text);
  const controls = make("div", { class: "controls" },
    sets.length > 1 && make("select", { "aria-label": "Evaluation set", "data-focus": `${id} set`, onchange: (event) => {
      chosen.set = event.target.value;
      keepingFocus(() => refresh(id));
    } }, sets.map(({ name }) => make("option", { value: name, selected: name === set.name }, name))),
    canChoose && make("div", { class: "choice", role: "group", "aria-label": "Evaluation" },
      button(false, `latest, step ${formatNumber(latest.step)}`),
      button(true, `best, step ${formatNumber(best.step)}`, set.is_chosen ? "the best model of the run" : "the highest F1")));
  return { set, block, controls: sets.length > 1 || canChoose ? controls : null, chosen };
}

/** A table whose heads sort it. columns: {id, head, of(row), cell(row), isText, isDown: the highest first}. */
function sortedTable(id, columns, rows, first) {
  const chosen = view.sets[id] ??= {};
  const sort = chosen.sort && columns.some((column) => column.id === chosen.sort.id) ? chosen.sort : { id: first, isDown: false };
  const column = columns.find((one) => one.id === sort.id), way = sort.isDown ? -1 : 1;
  const sorted = rows.map((row, place) => ({ row, place, value: column.of(row) }))
    .sort((a, b) => compareValues(a.value, b.value, way) || a.place - b.place);
  const head = (one) => make("button", { type: "button", class: "sort", "data-focus": `${id} sort ${one.id}`, onclick: () => {
    chosen.sort = { id: one.id, isDown: one === column ? !sort.isDown : Boolean(one.isDown) };
    keepingFocus(() => refresh(id));
  } }, one.head);
  const heads = columns.map((one) => one.of ? head(one) : one.head);
  const built = table(heads, sorted.map(({ row }) => columns.map((one) => one.cell(row))), {
    class: "of-classes", numeric: columns.flatMap((one, i) => one.isText ? [] : [i]),
  });
  built.querySelectorAll("td").forEach((cell) => cell.removeAttribute("data-head"));
  const at = columns.indexOf(column);
  built.querySelectorAll("th")[at].setAttribute("aria-sort", sort.isDown ? "descending" : "ascending");
  return built;
}

/** A line so small that it fits into a cell; the values lie between 0 and `top`. */
function sparkline(values, top, label) {
  const width = 110, height = 24, last = values.length - 1;
  const at = (value, i) => `${(2 + i / Math.max(1, last) * (width - 6)).toFixed(1)},${(height - 3 - value / top * (height - 6)).toFixed(1)}`;
  const places = values.map((value, i) => value === null ? null : at(value, i)).filter(Boolean);
  if (places.length < 2) return null;
  const [x, y] = places[places.length - 1].split(",");
  return draw("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    draw("path", { class: "floor", d: `M2,${height - 2.5}H${width - 4}` }), draw("path", { class: "line", d: `M${places.join("L")}` }),
    draw("circle", { cx: x, cy: y, r: 2.5 }));
}
