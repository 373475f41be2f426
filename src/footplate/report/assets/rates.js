/* The page of a sweep of learning rates: what it suggests, and the loss over the rate. */

const ENDS = {
  "complete": "up to the highest rate", "exploded": "then the loss exploded", "no more data": "then the data gave no batch any more",
  "loss not finite": "then the loss was not finite", "gradients not finite": "then the gradients were not finite",
};
const view = { at: null };  // the point that pointer or keys are at
const announcer = make("p", { class: "only-heard", role: "status" });

/** A rate as people write it: 0.0031 and 2e-5. */
const formatRate = (rate) => formatNumber(rate, 2);

// ---- the headline ----

function headline({ found }) {
  const facts = factsOf(found).map(([name, value, note]) =>
    make("div", null, make("dt", null, name), make("dd", { class: name === "Suggestion" ? "suggested" : null }, value), note && make("dd", { class: "note" }, note)));
  return make("header", { class: "top" },
    make("div", { class: "title" }, make("h1", null, "Learning rate"), make("span", { class: "quiet" }, found.name)),
    found.problem && make("div", { class: "alerts" }, make("div", { class: "alert warning" }, make("span", { class: "message" }, `There is no suggestion: ${found.problem}`))),
    make("dl", { class: "facts" }, facts), announcer);
}

function factsOf(found) {
  const facts = [], [, , numPlanned] = found.planned;
  if (found.suggestion !== null) facts.push(["Suggestion", formatRate(found.suggestion), "where the loss falls fastest"]);
  facts.push(["Set now", formatNumber(found.current, 3), found.suggestion === null ? null : compareRates(found.current, found.suggestion)]);
  if (found.minimum !== null) facts.push(["Loss is lowest at", formatRate(found.minimum), `a tenth of that: ${formatRate(found.minimum / 10)}`]);
  if (found.diverges !== null) facts.push(["Diverges from", formatRate(found.diverges), "there it is above its start"]);
  facts.push(["Updates", formatNumber(found.rates.length), `of ${formatNumber(numPlanned)}, ${ENDS[found.stopped] || found.stopped}`]);
  facts.push(["Time", formatDuration(found.seconds), null]);
  return facts;
}

function compareRates(current, suggestion) {
  const times = current / suggestion;
  if (times > 0.8 && times < 1.25) return "as suggested";
  return times < 1 ? `${formatNumber(1 / times, 2)} times below` : `${formatNumber(times, 2)} times above`;
}

// ---- the picture ----

function curve({ found }) {
  if (found.rates.length < 2) return null;
  const key = (kind, text) => make("span", { class: "line" }, make("i", { class: kind }), make("span", { class: "name" }, text));
  const holder = make("div", { class: "plot picture", tabindex: 0, role: "group", "aria-roledescription": "chart", "data-focus": "curve", "aria-label": describeCurve(found) });
  const figure = make("figure", { class: "chart wide" },
    make("figcaption", null, make("h3", null, "Loss over the learning rate")),
    make("div", { class: "legend" }, key("dot", "loss of an update"), key("line-key", "smoothed"),
      found.suggestion !== null && key("suggestion-key", "suggestion"), isShown(found, found.current) && key("current-key", "set now"), found.diverges !== null && key("box diverges-key", "diverges")), holder);
  figure.draw = () => paint(holder, found);
  return make("div", { class: "curve" }, make("h2", null, "The curve"), figure);
}

const isShown = (found, rate) => rate >= found.rates[0] && rate <= found.rates[found.rates.length - 1];

function describeCurve(found) {
  const said = found.suggestion === null ? "No rate is suggested" : `${formatRate(found.suggestion)} is suggested`;
  return `Loss over the learning rate, ${found.rates.length} points from ${formatRate(found.rates[0])} to ${formatRate(found.rates[found.rates.length - 1])}. ${said}. Left and right arrow keys go from point to point.`;
}

/** Draw the picture into its holder, and let pointer and keys read values. */
function paint(holder, found) {
  const width = Math.max(holder.clientWidth, 240), height = width < 500 ? 300 : 380;
  const [low, high] = found.shown, room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  const [bottom, top] = [low - 2 * room, high + room];  // below is room for a label
  const yTicks = evenTicks(bottom, top, false).filter((tick) => tick >= bottom && tick <= top);
  const widest = Math.max(...yTicks.map((tick) => formatTick(tick).length));
  const box = { left: 16 + 6.3 * widest, right: width - 14, top: 26, bottom: height - 42 };
  const axis = makeAxis("learning rate", [found.rates[0], found.rates[found.rates.length - 1]], { kind: "log" });
  const x = (rate) => box.left + axis.at(rate) * (box.right - box.left);
  const y = (loss) => box.bottom - (loss - bottom) / (top - bottom) * (box.bottom - box.top);
  const places = { width, height, box, axis, yTicks, x, y, xs: found.rates.map(x) };
  const marked = draw("g", {}), tip = make("div", { class: "tip", hidden: true });
  holder.replaceChildren(draw("svg", { width, height, "aria-hidden": "true" }, paintAxes(places), paintRegion(found, places), paintCurve(found, places), paintMarks(found, places), marked), tip);
  const show = (index) => showPoint(index, found, places, marked, tip, holder);
  holder.onpointermove = (event) => show(nearest(places.xs, event.clientX - holder.getBoundingClientRect().left));
  holder.onpointerleave = holder.onblur = () => show(null);
  holder.onkeydown = (event) => walk(event, found, show);
  show(view.at);
  return { destroy: () => {} };
}

function paintAxes({ width, height, box, axis, yTicks, y }) {
  const left = (tick) => box.left + tick.at * (box.right - box.left);
  const line = (x1, y1, x2, y2) => draw("line", { class: "grid-line", x1, y1, x2, y2 });
  const apart = Math.ceil(axis.ticks.length * 48 / (box.right - box.left));  // labels need room
  return [
    yTicks.map((tick) => [line(box.left, y(tick), box.right, y(tick)), draw("text", { x: box.left - 8, y: y(tick) + 4, "text-anchor": "end" }, formatTick(tick))]),
    axis.ticks.map((tick, i) => [line(left(tick), box.top, left(tick), box.bottom),
      i % apart === 0 && draw("text", { x: left(tick), y: box.bottom + 17, "text-anchor": "middle" }, tick.label)]),
    draw("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, "learning rate (logarithmic)"),
  ];
}

/** The rates at which the loss is above its start. */
function paintRegion(found, { box, x }) {
  if (found.diverges === null) return null;
  const left = x(found.diverges), hasRoom = box.right - left > 62;
  return [draw("rect", { class: "diverges", x: left, y: box.top, width: Math.max(0, box.right - left), height: box.bottom - box.top }),
    hasRoom && draw("text", { class: "bad", x: box.right - 6, y: box.bottom - 8, "text-anchor": "end" }, "diverges")];
}

function paintCurve(found, { box, x, y }) {
  const inside = draw("clipPath", { id: "inside" }, draw("rect", { x: box.left - 3, y: box.top - 3, width: box.right - box.left + 6, height: box.bottom - box.top + 6 }));
  const far = (box.bottom - box.top) * 20;  // an explosion is far outside: cut it before numbers become too large to draw
  const at = (values, i) => `${x(found.rates[i]).toFixed(1)},${Math.max(box.top - far, y(values[i])).toFixed(1)}`;
  const dots = found.losses.map((_, i) => `M${at(found.losses, i)}h0`).join("");
  const line = found.smoothed.map((_, i) => `${i ? "L" : "M"}${at(found.smoothed, i)}`).join("");
  return [inside, draw("g", { "clip-path": "url(#inside)" }, draw("path", { class: "losses", d: dots }), draw("path", { class: "smoothed", d: line }))];
}

/** The suggestion, the lowest place and the rate that is set, each with its value. */
function paintMarks(found, { box, x, y }) {
  const marks = [], upright = (rate, kind) => draw("line", { class: kind, x1: x(rate), x2: x(rate), y1: box.top, y2: box.bottom });
  const anchor = (left, half) => left + half > box.right ? "end" : left - half < box.left ? "start" : "middle";
  if (isShown(found, found.current)) {
    const left = x(found.current), isLeft = left - box.left > 90;
    marks.push(upright(found.current, "current"), draw("text", { x: left + (isLeft ? -6 : 6), y: box.bottom - 8, "text-anchor": isLeft ? "end" : "start" }, `set now: ${formatNumber(found.current, 3)}`));
  }
  if (found.minimum !== null) {
    const left = x(found.minimum), below = y(found.smoothed[found.rates.indexOf(found.minimum)]);
    marks.push(draw("circle", { class: "lowest", cx: left, cy: below, r: 4.5 }), draw("text", { x: left, y: below + 19, "text-anchor": anchor(left, 50) }, `lowest at ${formatRate(found.minimum)}`));
  }
  if (found.suggestion !== null) {
    const left = x(found.suggestion), loss = interpolate(found.rates, found.smoothed, found.suggestion);
    marks.push(upright(found.suggestion, "suggestion"), draw("circle", { class: "at-suggestion", cx: left, cy: y(loss), r: 5 }),
      draw("text", { class: "good", x: left, y: box.top - 9, "text-anchor": anchor(left, 60) }, `suggestion ${formatRate(found.suggestion)}`));
  }
  return marks;
}

// ---- pointer and keys ----

function showPoint(index, found, { box, x, y }, marked, tip, holder) {
  view.at = index;
  tip.hidden = index === null;
  if (index === null) { marked.replaceChildren(); return; }
  const rate = found.rates[index], left = x(rate), height = y(found.smoothed[index]);
  marked.replaceChildren(draw("line", { class: "cursor", x1: left, x2: left, y1: box.top, y2: box.bottom }),
    ...(height >= box.top ? [draw("circle", { class: "hovered", cx: left, cy: height, r: 4 })] : []));
  const row = (name, value) => make("div", { class: "row" }, make("span", { class: "name" }, name), make("b", null, formatNumber(value)));
  tip.replaceChildren(make("div", { class: "at" }, `update ${index + 1}`), row("rate", Number(rate.toPrecision(3))), row("loss", found.losses[index]), row("smoothed", found.smoothed[index]));
  const isLeft = left > holder.clientWidth / 2;
  tip.style.left = isLeft ? "auto" : `${left + 12}px`;
  tip.style.right = isLeft ? `${holder.clientWidth - left + 12}px` : "auto";
  tip.style.top = `${box.top + 6}px`;
}

/** Arrow keys go from point to point. */
function walk(event, found, show) {
  const last = found.rates.length - 1, at = view.at;
  const steps = { ArrowRight: at === null ? 0 : at + 1, ArrowLeft: at === null ? last : at - 1, Home: 0, End: last, Escape: null };
  if (!(event.key in steps)) return;
  event.preventDefault();
  const index = steps[event.key] === null ? null : Math.max(0, Math.min(last, steps[event.key]));
  show(index);
  if (index !== null) announcer.textContent = `rate ${formatRate(found.rates[index])}: loss ${formatNumber(found.losses[index])}, smoothed ${formatNumber(found.smoothed[index])}`;
}

// ---- how to read it ----

function reading({ found }) {
  const factors = [...new Set(found.factors)], say = (...text) => make("p", null, ...text);
  return section("reading", "How to read it", make("div", { class: "reading" },
    say("Each point is a real update, at a rate a little higher than the one before. Low rates change nothing; then the loss falls, and where it falls fastest is the suggestion; beyond its lowest place the updates become too large."),
    found.suggestion !== null && say("It is the upper part of the good range, for a rate that is reached by a warm-up and falls afterwards. Fine-tuning a large model and runs of many thousand updates do better with a third to a tenth of it."),
    found.minimum !== null && found.minimum === found.rates[found.rates.length - 1] && say("The loss was lowest at the highest rate, so the curve is not seen to its end: a higher one may show more."),
    factors.length > 1 && say(`The parameter groups keep their proportions: ${factors.map((factor) => formatNumber(factor, 3)).join(", ")} times the rate.`)));
}

// ---- putting it together ----

const BUILDERS = { headline, curve, reading, footer: ({ written }) => make("footer", { class: "quiet" }, `Written ${formatTime(written)}. Weights, data order and random numbers of the run are as they were before.`) };
const DRAWN = ["curve"];

function render() {
  keepingFocus(() => renderParts(Object.keys(BUILDERS)));
}
