// Headings, facts and blocks of a page.
import { h } from "../dom.js";

export const heading = (text, ...beside) => h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, text), beside);

/** Make a part of a page: a heading, an explanation beside it, and content. */
export const block = (title, about, ...content) =>
  h("section", { class: "section", "aria-label": title }, h("header", null, h("h2", null, title), about ? h("p", null, about) : null), content);

export const card = (...content) => h("div", { class: "card" }, content);
export const flush = (...content) => h("div", { class: "card flush" }, content);

/** Make a list of facts: pairs of a label and a value. */
export const facts = (pairs, kind = "") =>
  h("dl", { class: `facts ${kind}` }, pairs.filter(Boolean).map(([label, value]) => h("div", null, h("dt", null, label), h("dd", null, value))));

export const crumbs = (section, label) =>
  h("nav", { class: "crumbs", "aria-label": "Above this page" }, h("a", { href: `/${section}` }, `← ${label}`));

/** Make a word with what it means as its title. */
export const term = (label, about) => (about ? h("abbr", { title: about }, label) : label);
