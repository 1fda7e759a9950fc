// Fields of the bar above a list. They change the query of the address.
import { h } from "../dom.js";

const PAUSE = 250;
let typed = null;

/** Make a search field; `change` is called when the reader pauses. */
export const search = (label, value, change) =>
  h("label", { class: "field grow" }, h("span", null, label),
    h("input", { type: "search", value: value ?? "", autocomplete: "off", spellcheck: "false", maxlength: "200", on: {
      input: (event) => {
        const text = event.target.value;
        clearTimeout(typed);
        typed = setTimeout(() => change(text), PAUSE);
      },
    } }));

/** Make a choice among [value, label] pairs. */
export const choice = (label, options, value, change) =>
  h("label", { class: "field" }, h("span", null, label),
    h("select", { value: value ?? "", on: { change: (event) => change(event.target.value) } },
      options.map(([each, text]) => h("option", { value: each, selected: each === (value ?? "") }, text))));
