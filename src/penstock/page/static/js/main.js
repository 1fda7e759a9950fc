// Opens the page that the address names, and renders it anew when the run changes.
import { leave, live } from "./api.js";
import { render } from "./dom.js";
import { failure, skeleton } from "./components/states.js";
import { find } from "./routes.js";
import { showConnection, showFoot, showNavigation } from "./shell.js";

const AGES = 5000;
const main = document.getElementById("main");
let view = null;

history.scrollRestoration = "manual";

/** Open the page of the current address. */
async function open({ scroll = 0, focus = true } = {}) {
  leave();
  const { page, name } = find(location.pathname);
  const opened = { page, name, version: live.overview?.version, data: null, error: null, isLoading: false, isStale: false, isShown: false };
  view = opened;
  document.title = `${page.title(name)} · Penstock`;
  showNavigation(page.section);
  const waiting = setTimeout(() => view === opened && render(main, skeleton()), 150);
  await load(opened);
  clearTimeout(waiting);
  if (view !== opened) return;
  window.scrollTo(0, scroll);
  if (focus) main.querySelector("h1")?.focus({ preventScroll: true });
}

/** Load the data of a page, and show it; changes that arrive meanwhile cause one more load. */
async function load(opened) {
  if (opened.isLoading) {
    opened.isStale = true;
    return;
  }
  opened.isLoading = true;
  do {
    opened.isStale = false;
    try {
      opened.data = await opened.page.load(context(opened));
      opened.error = null;
    } catch (error) {
      opened.error = error;
    }
    if (view !== opened) return;
    show();
  } while (opened.isStale);
  opened.isLoading = false;
}

function show() {
  if (!view.isShown) render(main);
  view.isShown = true;
  if (view.data) render(main, view.page.view(view.data, context(view)));
  else if (view.error) render(main, failure(view.error));
}

/** What a page needs beside its data: the name in its address, the query, the server's time. */
function context(opened) {
  const query = Object.fromEntries(new URLSearchParams(location.search));
  return { name: opened.name, query, now: live.now(), overview: live.overview, choose: (changes) => choose(opened, changes) };
}

/** Change the query of the address without a new entry in the history: the page remains, with other data. */
function choose(opened, changes) {
  const query = Object.fromEntries(new URLSearchParams(location.search));
  const next = Object.entries({ ...query, ...changes }).filter(([, value]) => value !== "" && value !== null);
  const search = next.length ? `?${new URLSearchParams(next)}` : "";
  history.replaceState(history.state, "", location.pathname + search);
  load(opened);
}

function navigate(target) {
  history.replaceState({ scroll: window.scrollY }, "");
  history.pushState({ scroll: 0 }, "", target);
  open();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (link.origin !== location.origin || link.hasAttribute("download") || link.target || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  navigate(link.href);
});

let scrolled = null;
window.addEventListener("scroll", () => {
  clearTimeout(scrolled);
  scrolled = setTimeout(() => history.replaceState({ scroll: window.scrollY }, ""), 200);
}, { passive: true });
window.addEventListener("popstate", (event) => {
  clearTimeout(scrolled);
  open({ scroll: event.state?.scroll ?? 0 });
});

/** The run changed: load again, but not for a reader who looks elsewhere. */
function changed() {
  showConnection(live);
  showFoot(live);
  if (document.hidden || !live.connected) return;
  if (view?.version === live.overview?.version) return;
  view.version = live.overview.version;
  load(view);
}

document.addEventListener("visibilitychange", changed);
setInterval(() => {
  if (document.hidden || !view.isShown) return;
  show();
  showFoot(live);
}, AGES);
open({ scroll: history.state?.scroll ?? 0, focus: false });
live.connect(changed);
