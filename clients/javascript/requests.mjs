// One way to ask the service for anything: within a deadline, and following nobody elsewhere with the key.

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

  /** The answer's status, text, entity tag and Retry-After; throws where there is none in time. */
  async ask(address, { headers, ...request }, seconds) {
    const deadline = new AbortController();
    const giveUp = () => deadline.abort();
    const timer = setTimeout(giveUp, seconds * 1000);
    this.#stop.addEventListener("abort", giveUp);
    try {
      const answer = await this.#fetch.call(globalThis, address, {
        ...request,
        headers: { ...this.#headers, ...headers },
        redirect: "error",
        cache: "no-store",
        credentials: "omit",
        signal: deadline.signal,
      });
      return {
        status: answer.status,
        text: answer.status === 304 ? "" : await answer.text(),
        tag: answer.headers.get("etag"),
        retryAfter: answer.headers.get("retry-after"),
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

/** The code of an error that is the service's own; null for one of something on the way. */
export function codeOf(text) {
  const code = parsed(text)?.error?.code;
  return typeof code === "string" ? code : null;
}
