// An address that no page has.
import { h } from "../dom.js";
import { heading } from "../components/section.js";

export const section = null;
export const title = () => "No such page";
export const load = () => ({});
export const view = () => [heading("No such page"), h("p", null, "This address names no page. ", h("a", { href: "/" }, "Open the overview"), ".")];
