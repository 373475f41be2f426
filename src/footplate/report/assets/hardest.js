/* The rows that the model found hardest when the run had ended, and how the losses of all rows lie. */

function hardest(shown) {
  const runs = shown.runs.filter((run) => run.notes && run.notes.hardest && run.notes.hardest.num_rows);
  if (!runs.length) return null;
  const run = runs.find((other) => other.run_id === view.hardest) || runs[0];
  const found = run.notes.hardest;
  const choice = runs.length > 1 && make("div", { class: "controls" }, make("select", { "aria-label": "Run", onchange: (event) => {
    view.hardest = event.target.value;
    refresh("hardest");
  } }, runs.map((other) => make("option", { value: other.run_id, selected: other === run }, other.label))));
  return section("hardest", "Hardest rows", choice, make("p", { class: "hardest-words" }, describeLosses(found)),
    drawLosses(found), hardestTable(found));
}

const countedRows = (number) => `${formatNumber(number)} ${number === 1 ? "row" : "rows"}`;

/** All rows in a few sentences. */
function describeLosses(found) {
  const unlabelled = found.num_unlabelled || 0, looked = found.num_rows + unlabelled;
  const all = found.total && found.total > looked ? ` of ${formatNumber(found.total)}` : "";
  const said = [`When training had ended, ${countedRows(looked)}${all} went through the model.`];
  if (unlabelled > 0) said.push(`${formatNumber(unlabelled)} of them ${unlabelled === 1 ? "has" : "have"} no label that counts, and so no loss.`);
  const { median } = found.quantiles;
  if (median !== undefined && found.mean !== null) said.push(`Half of ${unlabelled > 0 ? "the others" : "them"} have a loss below ${formatNumber(median, 4)}, and the mean is ${formatNumber(found.mean, 4)}.`);
  if (found.limit !== null) {
    said.push(found.num_outliers
      ? `${countedRows(found.num_outliers)} with a loss above ${formatNumber(found.limit, 4)} ${found.num_outliers === 1 ? "is an outlier" : "are outliers"}: perhaps labelled wrong, broken, or rare.`
      : `None is an outlier: that begins at ${formatNumber(found.limit, 4)}.`);
  }
  if (found.num_nonfinite) said.push(`${countedRows(found.num_nonfinite)} ${found.num_nonfinite === 1 ? "has" : "have"} no finite loss.`);
  if (!found.is_whole) said.push("The pass was ended before the last row.");
  return said.join(" ");
}

/** The rows by their loss; the height is a logarithm, since an outlier is one row beside thousands. */
function drawLosses(found) {
  const { bins, edges: [low, high], limit } = found;
  if (!bins.length) return null;
  const width = (high - low) / bins.length, most = Math.max(...bins);
  const height = (rows) => rows ? 8 + 92 * Math.log1p(rows) / Math.log1p(most) : 0;
  const bars = bins.map((rows, i) => {
    const from = low + i * width, isBeyond = limit !== null && from >= limit;
    // the column in which outliers begin has others too: both colours
    const split = limit !== null && from < limit && limit < from + width ? (limit - from) / width * 100 : null;
    const background = split === null ? {} : { background: `linear-gradient(90deg, var(--c0) ${split}%, var(--bad) ${split}%)` };
    return make("div", { class: `column${isBeyond ? " beyond" : ""}`, title: `${countedRows(rows)} with a loss from ${formatNumber(from, 3)} to ${formatNumber(from + width, 3)}` },
      make("div", { style: { height: `${height(rows)}%`, ...background } }));
  });
  const at = limit === null ? null : (limit - low) / (high - low) * 100;
  const isInside = at !== null && at > 0 && at < 100;
  const words = `Rows by their loss, from ${formatNumber(low, 3)} to ${formatNumber(high, 3)}; the highest column has ${countedRows(most)}`;
  return make("figure", { class: "chart losses" },
    make("figcaption", null, make("h3", null, "Rows by their loss"), make("span", { class: "quiet" }, `highest column: ${countedRows(most)}; logarithmic`)),
    make("div", { class: "columns", role: "img", "aria-label": words }, bars,
      isInside && make("div", { class: "limit", style: { left: `${at}%` } },
        make("span", { class: at > 60 ? "before" : null }, `outliers above ${formatNumber(limit, 3)}`))),
    make("div", { class: "ends quiet" }, make("span", null, formatNumber(low, 3)), make("span", null, "loss"), make("span", null, formatNumber(high, 3))));
}

/** The rows as samples are shown, each loss with a bar. */
function hardestTable(found) {
  const most = Math.max(...found.rows.map((row) => Number.isFinite(row.loss) ? row.loss : 0));
  const rows = found.rows.map(({ loss, row, ...shown }) => ({ loss: typeof loss === "number" ? Number(loss.toPrecision(4)) : loss, row, ...shown }));
  const result = sampleTable(rows);
  result.classList.add("tall");
  result.querySelectorAll("td[data-head='Loss']").forEach((cell, i) => {
    const { loss, outlier } = found.rows[i];
    const share = Number.isFinite(loss) ? (most > 0 ? Math.max(0, loss) / most : 0) : 1;
    cell.classList.add("loss");
    const text = cell.querySelector(".text") || cell;
    text.append(make("span", { class: `loss-bar${outlier === true ? " beyond" : ""}` }, make("i", { style: { width: `${share * 100}%` } })));
  });
  return result;
}
