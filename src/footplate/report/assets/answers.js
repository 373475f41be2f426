/* Exact match and F1 of answers, by the length of answer, question and context. */

const LENGTH_TITLES = { answer: "By words of the right answer", question: "By words of the question", context: "By words of the context" };

function answers(shown) {
  const sets = shown.runs.length === 1 && (shown.runs[0].notes || {}).answers;
  if (!sets) return null;
  const { block, controls } = chooseEvaluation("answers", sets);
  const of = `${formatNumber(block.num_items)} questions at step ${formatNumber(block.step)}: exact match ${formatNumber(block.exact_match, 4)} %, F1 ${formatNumber(block.f1, 4)} %.`;
  const figures = Object.keys(LENGTH_TITLES).filter((name) => block.tables[name]).map((name) => lengthBars(name, block.tables[name]));
  return section("answers", "Answers by length", controls, make("p", { class: "quiet" }, of), make("div", { class: "grid" }, figures));
}

/** Two bars for each bucket, exact match and F1, with their values and the number of questions. */
function lengthBars(name, buckets) {
  const bar = (kind, value) => make("div", { class: "length-bar" }, make("div", { class: `track ${kind}` }, make("div", { style: { width: `${value}%` } })),
    make("span", { class: "value" }, value.toFixed(1)));
  const rows = buckets.map(([label, count, exact, f1]) => make("div", { class: "bucket", role: "listitem", "aria-label": `${label}: ${count} questions, exact match ${exact} %, F1 ${f1} %` },
    make("div", { class: "bucket-name" }, make("b", null, label), make("span", { class: "quiet" }, `${formatNumber(count)} ${count === 1 ? "question" : "questions"}`)),
    make("div", { class: "bucket-bars" }, bar("exact", exact), bar("f1", f1))));
  const key = (kind, text) => make("span", { class: "line" }, make("i", { class: `box ${kind}` }), make("span", { class: "name" }, text));
  return make("figure", { class: "chart lengths", "data-lengths": name }, make("figcaption", null, make("h3", null, LENGTH_TITLES[name])),
    make("div", { class: "legend" }, key("exact", "exact match, %"), key("f1", "F1, %")), make("div", { role: "list" }, rows));
}
