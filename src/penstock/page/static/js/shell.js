// What surrounds each page: navigation, the run's state, the theme, and a note while the server is not connected.
import { h, render, svg } from "./dom.js";
import { badge } from "./components/badge.js";
import { clock, since } from "./format.js";

//: the section's name in addresses, its label, its icon (paths on a grid of 24)
const SECTIONS = [
  ["", "Overview", ["M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z"]],
  ["queries", "Queries", ["M4 6h16M4 12h10M4 18h6", "M17 20a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM19.2 19.2 21 21"]],
  ["windows", "Windows", ["M4 18v-6h4v6zM10 18V6h4v12zM16 18v-9h4v9z"]],
  ["plans", "Plans", ["M6 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM18 14a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM6 20a2 2 0 1 0 0-4 2 2 0 0 0 0 4z", "M8 6h3c3 0 2 6 5 6M8 18h3c3 0 2-6 5-6"]],
  ["deadlines", "Deadlines", ["M12 21a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM12 9v4l3 2M9 2h6"]],
  ["rows", "Rows", ["M4 5h16v14H4zM4 10h16M4 14.5h16M10 5v14"]],
  ["quarantine", "Quarantine", ["M12 3 4 6v6c0 5 3.5 8 8 9 4.5-1 8-4 8-9V6zM12 8v5M12 16v.2"]],
];
const THEMES = ["system", "light", "dark"];

export function showNavigation(current) {
  const links = SECTIONS.map(([section, label, paths]) =>
    h("li", null, h("a", { href: `/${section}`, "aria-current": section === current ? "page" : null },
      svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, paths.map((d) => svg("path", { d }))),
      h("span", null, label))));
  render(document.getElementById("nav"), h("ul", null, links));
}

export function showFoot(live) {
  const run = live.overview?.run;
  render(document.getElementById("foot"),
    run ? badge(run.state) : null,
    run?.started ? h("p", { class: "seen" }, "Run started ", since(run.started, live.now())) : null,
    h("button", { class: "button quiet", type: "button", on: { click: () => nextTheme(live) } }, `Theme: ${theme()}`));
}

export function showConnection(live) {
  const note = document.getElementById("connection");
  note.hidden = live.connected !== false;
  if (note.hidden) return;
  note.textContent = live.received
    ? `Not connected. You see the state of ${clock(live.received)}. Trying again.`
    : "Not connected. Trying again.";
}

const theme = () => document.documentElement.dataset.theme ?? "system";

function nextTheme(live) {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("penstock-theme");
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem("penstock-theme", next);
  }
  window.dispatchEvent(new Event("themechange"));
  showFoot(live);
}
