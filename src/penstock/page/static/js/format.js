// Numbers, lengths of time and instants as short text; the exact value is the title of the element that shows it.
import { h } from "./dom.js";

const NONE = "–";
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
const exact = new Intl.NumberFormat("en-US", { maximumFractionDigits: 12 });
const SCALES = [[1e12, "T"], [1e9, "G"], [1e6, "M"]];

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Format a number: 336,776; 1.2 M; 0.035. */
export function short(value) {
  if (!known(value)) return NONE;
  const size = Math.abs(value);
  for (const [scale, sign] of SCALES) if (size >= scale) return `${fine.format(value / scale)} ${sign}`;
  return size >= 100 ? whole.format(value) : fine.format(value);
}

//: significant digits of numbers that are compared
const FEWEST = 4, MOST = 10;

/** Format a number that stands beside others: with as many digits as tell it from those that differ. */
export function apart(value, ...others) {
  if (!known(value)) return NONE;
  const shown = (digits) => (figure) => new Intl.NumberFormat("en-US", { maximumSignificantDigits: digits }).format(figure);
  let digits = FEWEST;
  while (digits < MOST && others.some((other) => other !== value && shown(digits)(other) === shown(digits)(value))) digits += 1;
  return shown(digits)(value);
}

/** Format a length of time given in seconds: 35 ms; 2.4 s; 3 min 20 s; 5 h; 12 days. */
export function length(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds < 0) return `-${length(-seconds)}`;
  const size = seconds;
  if (size === 0) return "0 s";
  if (size < 1e-6) return `${fine.format(seconds * 1e9)} ns`;
  if (size < 1e-3) return `${fine.format(seconds * 1e6)} µs`;
  if (size < 1) return `${fine.format(seconds * 1e3)} ms`;
  if (size < 60) return `${fine.format(seconds)} s`;
  const total = Math.round(seconds);
  if (size < 3600) return parts(Math.floor(total / 60), "min", total % 60, "s");
  if (size < 172800) return parts(Math.floor(total / 3600), "h", Math.floor((total % 3600) / 60), "min");
  if (size < 2 * 365.25 * 86400) return `${whole.format(seconds / 86400)} days`;
  return `${fine.format(seconds / 86400 / 365.25)} years`;
}

const parts = (large, unit, small, fraction) => (small ? `${large} ${unit} ${small} ${fraction}` : `${large} ${unit}`);

export const percent = (share) => (known(share) ? `${fine.format(share * 100)} %` : NONE);
export const rate = (value) => (known(value) ? `${short(value)}/s` : NONE);
export const counted = (count, noun, plural = `${noun}s`) => `${short(count)} ${count === 1 ? noun : plural}`;

const pad = (value) => String(value).padStart(2, "0");

/** Format an instant of event time, in UTC: 2013-01-06 04:59:00. */
export const utc = (at) => (known(at) ? new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ") : NONE);

/** Format an instant of the run, in the reader's time zone. */
export function local(at) {
  if (!known(at)) return NONE;
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${clock(at)}`;
}

export function clock(at) {
  const date = new Date(at * 1000);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** Format how long ago an instant was: 3 minutes ago. */
export function ago(at, now) {
  if (!known(at)) return NONE;
  const seconds = Math.max(0, now - at);
  if (seconds < 2) return "just now";
  for (const [size, noun] of [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]])
    if (seconds >= size) return `${counted(Math.floor(seconds / size), noun)} ago`;
}

/** Make an element of a number: short, with the exact value as its title. */
export const number = (value, format = short) =>
  h("span", { title: known(value) ? exact.format(value) : null }, format(value));

/** Make an element of an instant of the run. */
export const since = (at, now) =>
  known(at) ? h("time", { datetime: new Date(at * 1000).toISOString(), title: local(at) }, ago(at, now)) : NONE;

/** Make an element of a window, in event time: the day once where both ends have the same. */
export function span(start, end) {
  const [from, to] = [utc(start).slice(0, 16), utc(end).slice(0, 16)];
  return h("span", { class: "span", title: `${utc(start)} to ${utc(end)} UTC` }, h("time", null, from), " to ", h("time", null, from.slice(0, 10) === to.slice(0, 10) ? to.slice(11) : to));
}

/** Make an element of an instant of event time. */
export const event = (at) =>
  known(at) ? h("time", { datetime: new Date(at * 1000).toISOString(), title: `${utc(at)} UTC` }, utc(at).slice(0, 16)) : NONE;
