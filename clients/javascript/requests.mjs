// One way to ask the service for anything: within a deadline, and following nobody elsewhere with the key.

/** What Node calls a connection that the other side closed. Browsers ask again by themselves, as fetch's standard says. */
const CLOSED = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"]);

/** Asks with `fetch`, or with whatever is given in its place, until it is told to stop. */
export class Requests {
  #fetch;
  #headers;
  #stop;

  constructor(fetch, key, stop) {
    this.#fetch = fetch;
    this.#headers = key === undefined ? {} : { Authorization: `Bearer ${key}` };
    this.#stop = stop;
  }

  /** The answer's status, text, entity tag, Retry-After and signing key; throws if there is none in time. */
  async ask(address, { headers, ...request }, seconds) {
    const deadline = new AbortController();
    const giveUp = () => deadline.abort();
    const timer = setTimeout(giveUp, seconds * 1000);
    this.#stop.addEventListener("abort", giveUp);
    try {
      const asked = {
        ...request,
        headers: { ...this.#headers, ...headers },
        redirect: "error",
        cache: "no-store",
        credentials: "omit",
        signal: deadline.signal,
      };
      const ask = () => this.#fetch.call(globalThis, address, asked);
      // A kept connection may have been closed while it was idle. Everything we ask can be asked twice.
      const answer = await ask().catch((error) => {
        if (!CLOSED.has(error?.cause?.code) || deadline.signal.aborted) throw error;
        return ask();
      });
      return {
        status: answer.status,
        text: answer.status === 304 ? "" : await answer.text(),
        tag: answer.headers.get("etag"),
        retryAfter: answer.headers.get("retry-after"),
        signingKey: answer.headers.get("pasto-signing-key"),
      };
    } finally {
      clearTimeout(timer);
      this.#stop.removeEventListener("abort", giveUp);
    }
  }
}

/** A text as JSON; null where it is none. */
export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** What the service says about an error of its own, in one line; null for an error of something on the way. */
export function messageOf(text) {
  const message = parsed(text)?.error?.message;
  return typeof message === "string" ? message.split(/\s+/).join(" ").slice(0, 300) : null;
}

/** The code of an error that is the service's own; null for one of something on the way. */
export function codeOf(text) {
  const code = parsed(text)?.error?.code;
  return typeof code === "string" ? code : null;
}
