// Which page an address opens. Segments are percent-encoded: a name may contain anything, slashes too.
import * as deadlines from "./pages/deadlines.js";
import * as missing from "./pages/missing.js";
import * as overview from "./pages/overview.js";
import * as plans from "./pages/plans.js";
import * as quarantine from "./pages/quarantine.js";
import * as queries from "./pages/queries.js";
import * as query from "./pages/query.js";
import * as records from "./pages/records.js";
import * as results from "./pages/results.js";
import * as rows from "./pages/rows.js";
import * as window from "./pages/window.js";
import * as windows from "./pages/windows.js";

//: of each section the page itself, and the page of one name in it
const PAGES = {
  "": [overview],
  queries: [queries, query],
  windows: [windows, window],
  plans: [plans],
  deadlines: [deadlines],
  rows: [results, rows],
  quarantine: [quarantine, records],
};

export function find(path) {
  const [section, ...rest] = path.replace(/^\//, "").split("/");
  try {
    const name = rest.length ? decodeURIComponent(rest.join("/")) : null;
    const page = PAGES[section]?.[name ? 1 : 0];
    return page ? { page, name } : { page: missing, name: null };
  } catch {
    return { page: missing, name: null };
  }
}
