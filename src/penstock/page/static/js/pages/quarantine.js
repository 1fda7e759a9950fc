// Records that were set aside, by stream and reason.
import { address, ask, named } from "../api.js";
import { h } from "../dom.js";
import { counted, number } from "../format.js";
import { flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";

export const section = "quarantine";
export const title = () => "Quarantine";
export const load = () => ask("/api/quarantine");

export const view = ({ streams }) => {
  const filled = streams.filter((stream) => stream.records);
  return [
    heading("Quarantine", h("p", { class: "muted" }, "Records that Penstock could not read. It sets them aside and goes on.")),
    filled.length ? filled.map(stream) : flush(empty("No record in quarantine", "A record that does not fit its table appears here with the reason. All records of this run could be read.")),
  ];
};

const stream = ({ name, records, reasons }) =>
  h("section", { class: "card", "aria-label": name },
    h("header", { class: "split" }, h("h2", null, h("a", { class: "clip", href: named("/quarantine", name), title: name }, name)), h("p", { class: "muted" }, counted(records, "record"))),
    h("ul", { class: "reasons" }, reasons.map(({ reason, count }) =>
      h("li", null, h("a", { href: address(named("/quarantine", name), { reason }) }, reason), number(count)))));
