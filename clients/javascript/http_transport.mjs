// HTTP with `fetch`: one deadline for each request, and no redirects, because they could leak the key.

/** Codes of Node for a connection that the service closed. Browsers repeat the request themselves. */
const CLOSED_CODES = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"]);

/** Sends requests with `fetch`, or with the function given in its place, until the stop signal. */
export class HttpTransport {
  #fetch;
  #headers;
  #stop;

  constructor(fetch, apiKey, stop) {
    this.#fetch = fetch;
    this.#headers = apiKey === undefined ? {} : { Authorization: `Bearer ${apiKey}` };
    this.#stop = stop;
  }

  /** Send a request; return status, text, ETag, Retry-After and signing key, or throw if there is no answer in time. */
  async send(url, { headers, ...request }, timeoutSeconds) {
    const deadline = new AbortController();
    const abort = () => deadline.abort();
    const timer = setTimeout(abort, timeoutSeconds * 1000);
    this.#stop.addEventListener("abort", abort);
    try {
      const options = {
        ...request,
        headers: { ...this.#headers, ...headers },
        redirect: "error",
        cache: "no-store",
        credentials: "omit",
        signal: deadline.signal,
      };
      const attempt = () => this.#fetch.call(globalThis, url, options);
      // The service may have closed a kept-alive connection while it was idle. Every request may be repeated.
      const response = await attempt().catch((error) => {
        if (!CLOSED_CODES.has(error?.cause?.code) || deadline.signal.aborted) throw error;
        return attempt();
      });
      return {
        status: response.status,
        text: response.status === 304 ? "" : await response.text(),
        etag: response.headers.get("etag"),
        retryAfter: response.headers.get("retry-after"),
        signingKey: response.headers.get("pasto-signing-key"),
      };
    } finally {
      clearTimeout(timer);
      this.#stop.removeEventListener("abort", abort);
    }
  }
}

/** Return a text as JSON; null if it is not JSON. */
export function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Return the message of an error of the service, in one line; null for an error of a proxy. */
export function errorMessage(text) {
  const message = parseJson(text)?.error?.message;
  return typeof message === "string" ? message.split(/\s+/).join(" ").slice(0, 300) : null;
}

/** Return the code of an error of the service; null for an error of a proxy. */
export function errorCode(text) {
  const code = parseJson(text)?.error?.code;
  return typeof code === "string" ? code : null;
}
