/* Helpers: build elements and tables, format numbers, times and names, search and smooth points. */
"use strict";

/** An element with properties and children; text stays text. */
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** An element of a drawing. */
function draw(tag, properties, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A number in at most `digits` significant digits. */
function formatNumber(value, digits = 5) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) {
    return value.toExponential(Math.min(3, digits - 1)).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  return value.toLocaleString("en-US", { maximumSignificantDigits: digits });
}

/** A number beside an axis. */
function formatTick(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return formatNumber(value / (letter === "k" ? 1e3 : unit), 4) + letter;
  }
  return formatNumber(value, 6);
}

/** A size such as 1.25 GB, in units of a thousand. */
function formatSize(bytes) {
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= 0.9995 * size) return `${formatNumber(bytes / size, 3)} ${unit}`;
  }
  return `${formatNumber(bytes)} B`;
}

function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${formatNumber(seconds, 2)} s`;
  const whole = Math.round(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  return minutes ? `${minutes} min ${String(whole % 60).padStart(2, "0")} s` : `${whole} s`;
}

/** Seconds beside an axis: 90 is 1:30. */
function formatClock(seconds) {
  const whole = Math.round(seconds);
  const pad = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const rest = `${hours ? pad(Math.floor(whole / 60) % 60) : Math.floor(whole / 60)}:${pad(whole % 60)}`;
  return seconds < 10 && seconds !== whole ? `${formatNumber(seconds, 2)} s` : hours ? `${hours}:${rest}` : rest;
}

function formatTime(seconds) {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** Any value of a setting or a sample as text. */
function formatValue(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : formatNumber(value, 6);
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The index of the element nearest to x in a sorted list. */
function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

/** y at x on the line through the points, extended beyond the first and the last one. */
function interpolate(xs, ys, x) {
  if (xs.length < 2) return xs.length ? ys[0] * (xs[0] ? x / xs[0] : 1) : null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  return ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / (xs[high] - xs[low]);
}

/** An exponential mean, corrected so that it starts at the first value and not at zero. */
function smooth(values, weight) {
  let mean = 0, total = 0;
  return values.map((value) => {
    mean = mean * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return mean / total;
  });
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const toggle = (set, key) => set.has(key) ? set.delete(key) : set.add(key);

const TITLES = {
  loss: "Loss", learning_rate: "Learning rate", grad_norm: "Gradient norm", runtime: "Seconds per evaluation",
  updates_per_second: "Updates per second", samples_per_second: "Samples per second",
  steps_per_second: "Batches per second", tokens_per_second: "Tokens per second",
  num_input_tokens_seen: "Input tokens seen", nonfinite: "Values that were not finite",
};
/** A metric as people write it: exact_match is Exact match, f1 is F1. */
const titleOf = (metric) => TITLES[metric] || (metric.charAt(0).toUpperCase() + metric.slice(1)).replaceAll("_", " ");

function section(id, title, ...children) {
  return make("section", { id }, make("h2", null, title), ...children);
}

/** A table that scrolls sideways where it must; cells are text or elements. */
function table(heads, rows, options = {}) {
  const numeric = options.numeric || [];
  const kind = (i) => numeric.includes(i) ? "number" : null;
  return make("div", { class: "scroll" }, make("table", { class: options.class },
    make("thead", null, make("tr", null, heads.map((head, i) => make("th", { scope: "col", class: kind(i) }, head)))),
    make("tbody", null, rows.map((row) => make("tr", { class: row.mark },
      (row.cells || row).map((cell, i) => make("td", { class: kind(i), "data-head": heads[i] }, cell)))))));
}

/** A long name that may go on in the next line after an underscore. */
const breakable = (name) => name.split("_").flatMap((part, i) => i ? ["_", make("wbr"), part] : [part]);

/** Numbers before texts, and what is not there last, both ways. */
function compareValues(a, b, way) {
  const kind = (value) => value === undefined ? 2 : typeof value === "number" ? 0 : 1;
  if (kind(a) !== kind(b) || a === undefined) return kind(a) - kind(b);
  return way * (typeof a === "number" ? a - b : formatValue(a).localeCompare(formatValue(b)));
}
