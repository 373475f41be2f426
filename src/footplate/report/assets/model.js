/* The model: its modules as a tree, what is trained, and what that takes in memory. */

const MANY_LINES = 24;  // a longer tree is folded away

function modelSection(shown) {
  const tree = shown.runs.length === 1 && shown.runs[0].notes && shown.runs[0].notes.model;
  if (!tree) return null;
  const body = modelTable(tree);
  return section("model", "Model", make("p", { class: "about-model" }, describeModel(tree)),
    tree.lines.length > MANY_LINES ? folded("modules", `Its modules, in ${tree.lines.length} lines`, body) : body);
}

/** The totals in words. */
function describeModel(tree) {
  const isWhole = tree.trainable === tree.parameters;
  const trained = isWhole ? "all trained" : `${formatNumber(tree.trainable)} of them trained (${formatShare(tree.trainable, tree.parameters)})`;
  const parts = [
    make("b", null, `${formatNumber(tree.parameters, 15)} parameters`), `, ${trained}, in ${formatNumber(tree.num_modules)} modules. `,
    `Memory: weights ${formatSize(tree.weight_bytes)}`,
    tree.buffer_bytes > 0 && `, buffers ${formatSize(tree.buffer_bytes)}`,
    `, gradients ${formatSize(tree.gradient_bytes)}`,
    tree.optimizer_bytes > 0 ? `, ${tree.optimizer} ${formatSize(tree.optimizer_bytes)}.` : ".",
  ];
  const tied = tree.tied.filter((pair) => pair.length === 2);
  if (tied.length) {
    const more = tree.num_tied - tied.length;
    parts.push(" Shared, and counted once: ", ...tied.flatMap(([own, other], i) => [i ? ", " : "", make("code", null, own), " is ", make("code", null, other)]),
      more > 0 ? ` and ${formatNumber(more)} more.` : ".");
  }
  return parts;
}

function modelTable(tree) {
  const most = Math.max(...tree.lines.map((line) => line.parameters), 1);
  const rows = tree.lines.map((line) => ({ mark: line.trainable ? null : "frozen", cells: [
    make("span", { class: "module", style: { "--depth": line.depth } }, make("code", null, breakAtDots(line.name)),
      line.num_below > 0 && make("span", { class: "quiet" }, ` +${formatNumber(line.num_below)}`)),
    make("span", { class: "kind" }, line.count > 1 && make("b", null, `${formatNumber(line.count)} × `), line.kind),
    line.parameters ? formatNumber(line.parameters, 15) : line.tied ? make("span", { class: "quiet", title: `${line.tied} again` }, "shared") : make("span", { class: "quiet" }, "–"),
    line.parameters ? shareBar(line, most) : "",
    line.parameters ? `${formatSize(line.num_bytes)}` : "",
    line.parameters ? line.dtype : "",
  ] }));
  return table(["Module", "Class", "Parameters", "Trained", "Memory", "Type"], rows, { class: "modules", numeric: [2, 4] });
}

/** How large a module is beside the whole model, and how much of it is trained. */
function shareBar(line, most) {
  const bar = make("span", { class: "share", "aria-hidden": "true" },
    make("i", { class: "trained", style: { width: `${100 * line.trainable / most}%` } }),
    make("i", { class: "still", style: { width: `${100 * (line.parameters - line.trainable) / most}%` } }));
  return make("span", { class: "share-cell" }, bar, make("span", { class: "share-text" }, formatShare(line.trainable, line.parameters)));
}

/** A share in percent; what is not all is never shown as all, nor something as nothing. */
function formatShare(part, whole) {
  if (!part || !whole) return "–";
  const percent = 100 * part / whole;
  if (percent < 0.01) return "< 0.01 %";
  return `${percent < 10 ? formatNumber(percent, 2) : part === whole ? 100 : Math.min(99, Math.round(percent))} %`;
}

const breakAtDots = (name) => name.split(".").flatMap((part, i) => i ? [".", make("wbr"), part] : [part]);
