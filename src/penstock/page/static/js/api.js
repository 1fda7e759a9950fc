// Answers of the server, and the one connection over which it reports changes.

/** An answer that is not one: its sentence can be shown to the reader. */
export class Refused extends Error {}

let page = new AbortController();

/** End all questions of the page that the reader leaves; the server stops working on them. */
export function leave() {
  page.abort();
  page = new AbortController();
}

/** Ask for an answer; `query` leaves out what is empty. After `leave` no answer arrives. */
export async function ask(path, query = {}, headers = {}) {
  const { signal } = page;
  let response;
  try {
    response = await fetch(address(path, query), { signal, headers: { Accept: "application/json", ...headers } });
  } catch {
    if (signal.aborted) return never();
    throw new Refused("The server does not answer. Is `penstock page` still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (signal.aborted) return never();
  if (!response.ok) throw new Refused(answer.error ?? `The server answered with status ${response.status}.`);
  return answer;
}

const never = () => new Promise(() => {});

export function address(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

export const named = (base, name) => `${base}/${encodeURIComponent(name)}`;

const RETRY = 3000;

/** What the server reported last, and whether it is connected. */
export const live = {
  overview: null,
  connected: null,
  received: null,
  skew: 0,

  /** The server's time now, epoch seconds. */
  now: () => Date.now() / 1000 + live.skew,

  /** Connect; calls `changed` with each overview and with each change of the connection. */
  connect(changed) {
    const source = new EventSource("/api/changes");
    source.addEventListener("open", () => change(true));
    source.addEventListener("overview", (message) => {
      live.overview = JSON.parse(message.data);
      live.skew = live.overview.now - Date.now() / 1000;
      live.received = Date.now() / 1000;
      change(true);
    });
    source.addEventListener("error", () => {
      change(false);
      if (source.readyState !== EventSource.CLOSED) return;
      source.close();
      removeEventListener("pagehide", leave);
      setTimeout(() => live.connect(changed), RETRY);
    });

    // a browser keeps six connections to a server, also those of pages that it left and remembers
    const leave = () => {
      source.close();
      addEventListener("pageshow", () => live.connect(changed), { once: true });
    };
    addEventListener("pagehide", leave, { once: true });

    function change(connected) {
      live.connected = connected;
      changed();
    }
  },
};
