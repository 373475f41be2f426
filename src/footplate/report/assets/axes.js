/* Axes for values of any kind: numbers on a line, even or logarithmic, and everything else in places below it. */

const FEW_VALUES = 8;  // so few that they are shown as places, if each of them comes several times
const MAX_PLACES = 20;
const DECADES_FOR_LOG = 1.5, SHARE_FOR_LOG = 0.15;
const MISSING = "missing";  // the key of the place for trials that have no value

/** Tells the number 8 and the text "8" apart. */
const keyOf = (value) => value === undefined ? MISSING : `${typeof value} ${value}`;

/** An axis of these values: `at(value)` is its place from 0, the low end, to 1; `ticks` have a place and a label.

options: kind is "log", "list" or "line"; `room` is the share of the line left free at its ends; `missing` is what a
trial without a value is called. */
function makeAxis(name, values, options = {}) {
  const numbers = [...new Set(values.filter(Number.isFinite))].sort((a, b) => a - b);
  const others = [...new Map(values.filter((v) => !Number.isFinite(v)).map((v) => [keyOf(v), v])).values()].sort(comparePlaces);
  const isLine = options.kind !== "list" || numbers.length > MAX_PLACES;
  const isRepeated = numbers.length <= FEW_VALUES && numbers.length * 3 <= values.length && !options.kind;
  const places = isLine && !isRepeated ? others : [...others, ...numbers];
  const line = places === others && numbers.length ? makeLine(numbers, options) : null;
  const gap = line && places.length ? 0.06 : 0, share = line ? Math.min(0.5, places.length * 0.1) : 1;  // of the places
  const spots = new Map(places.map((value, i) => [keyOf(value), (i + 0.5) / places.length * share]));
  const at = (value) => spots.get(keyOf(value)) ?? share + gap + (1 - share - gap) * line.at(value);
  const label = (value) => value === undefined ? options.missing || "not set" : typeof value === "number" ? formatTick(value) : formatValue(value);
  const every = Math.ceil(places.length / MAX_PLACES);
  const ticks = [...places.filter((_, i) => i % every === 0), ...(line ? line.ticks : [])].map((value) => ({ at: at(value), label: label(value) }));
  return { name, at, ticks, isLog: Boolean(line && line.isLog), canLog: Boolean(line) && numbers[0] > 0, signature: JSON.stringify([name, numbers[0], numbers[numbers.length - 1], line && line.isLog, [...spots.keys()]]) };
}

/** Trials without a value lowest, then texts, from the end of the alphabet to its beginning. */
function comparePlaces(a, b) {
  if (a === undefined || b === undefined) return a === undefined ? -1 : 1;
  return formatValue(b).localeCompare(formatValue(a));
}

/** The part of an axis that numbers lie on. */
function makeLine(numbers, options) {
  let [low, high] = [numbers[0], numbers[numbers.length - 1]];
  const isLog = low > 0 && high > low && (options.isLog ?? (options.kind === "log" || spansDecades(numbers)));
  const scale = isLog ? Math.log10 : (value) => value / 2;  // halves: the distance of two huge numbers is finite
  const room = (options.room || 0) * (scale(high) - scale(low));
  const [start, end] = [scale(low) - room, scale(high) + room];
  const at = (value) => end > start ? (scale(value) - start) / (end - start) : 0.5;
  const ticks = isLog ? logTicks(low, high) : evenTicks(low, high, numbers.every(Number.isInteger));
  return { at, isLog, ticks: ticks.filter((tick) => at(tick) >= -1e-9 && at(tick) <= 1 + 1e-9) };
}

/** Whether small numbers are as many as large ones: among even numbers from 0 to 1, too, some are tiny. */
function spansDecades(numbers) {
  const [low, high] = [Math.log10(numbers[0]), Math.log10(numbers[numbers.length - 1])];
  const numSmall = numbers.filter((value) => Math.log10(value) < (low + high) / 2).length;
  return high - low >= DECADES_FOR_LOG && numSmall >= SHARE_FOR_LOG * numbers.length;
}

/** Round numbers between two others. */
function evenTicks(low, high, isWhole, count = 5) {
  const rough = (high / 2 - low / 2) / count * 2, unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max([1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough * 0.999), isWhole ? 1 : 0);
  const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
  if (!(last - first <= 20)) return low === high ? [low] : [low, high];  // also where the numbers are too close or too large
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Powers of ten; where there are few of them, also twice and five times these. */
function logTicks(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const factors = last - first <= 3 ? [1, 2, 5] : [1], every = Math.ceil((last - first) / 8);
  const found = [];
  for (let power = first; power <= last; power += every) found.push(...factors.map((m) => Number(`${m}e${power}`)));
  const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  return inside.length > 1 ? inside : [low, high];
}
