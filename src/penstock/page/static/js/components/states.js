// What a page shows in place of data: while it loads, when it has none, when the server refuses.
import { h } from "../dom.js";

/** Make an empty state: what would be here, and how to get it. */
export const empty = (what, ...how) => h("div", { class: "empty" }, h("strong", null, what), how.map((line) => h("p", null, line)));

export const skeleton = () => [
  h("div", { class: "bone line", role: "status" }, h("span", { class: "hidden-text" }, "Loading")),
  h("div", { class: "bone block" }),
  h("div", { class: "bone block" }),
];

export const failure = (error) => [
  h("h1", { tabindex: "-1" }, "This page has no data"),
  h("p", { class: "note bad", role: "alert" }, error.message),
];
