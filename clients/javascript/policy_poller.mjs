// Poller of the policy: long polls, or requests at an interval if long polls do not work.

import { describeError } from "./diagnostics.mjs";
import { PolicyError } from "./errors.mjs";
import { Backoff, MIN_INTERVAL_SECONDS } from "./event_sender.mjs";
import { errorCode, errorMessage } from "./http_transport.mjs";
import { hasChecksum } from "./policy_document.mjs";

/** Time for a response beyond that of the long poll. */
const RESPONSE_TIMEOUT_SECONDS = 10;
/** Longest time that the service holds a long poll. */
const MAX_LONG_POLL_SECONDS = 60;

/** Poller of the policy, one request at a time. */
export class PolicyPoller {
  #holder;
  #transport;
  #url;
  #errorLog;
  #clock;
  #stop;
  #pollInterval;
  #backoff;

  constructor({ holder, transport, url, errorLog, clock, random, stop, pollInterval }) {
    this.#holder = holder;
    this.#transport = transport;
    this.#url = url;
    this.#errorLog = errorLog;
    this.#clock = clock;
    this.#stop = stop;
    this.#pollInterval = pollInterval;
    this.#backoff = new Backoff(random);
  }

  /** Poll until the stop signal, first after `waitSeconds`. */
  async run(waitSeconds) {
    while (!this.#stop.aborted) {
      await this.#clock.sleep(waitSeconds, this.#stop);
      if (!this.#stop.aborted) waitSeconds = await this.poll();
    }
  }

  /** Send one request for the policy; resolve to the seconds until the next. Never rejects. */
  async poll() {
    const started = this.#clock.now();
    const held = this.#holder.policy;
    let response;
    try {
      response = await this.#request(held);
      this.#take(response, held);
    } catch (error) {
      if (!this.#stop.aborted) this.#errorLog.note(`no policy was read: ${describeError(error)}`);
      return this.#backoff.fail(response?.retryAfter);
    }
    this.#backoff.succeed();
    // A 304 that arrives at once comes from a service or proxy that does not hold long polls: wait here instead.
    const wasHeld = this.#clock.now() - started > this.#pollInterval / 2;
    const hasChanged = held !== this.#holder.policy;
    return hasChanged || wasHeld ? MIN_INTERVAL_SECONDS : this.#pollInterval * this.#backoff.jitter();
  }

  /** Ask for the policy. After a failure without `wait`, because a proxy may cut long polls. */
  #request(held) {
    const usesLongPoll = held !== null && this.#backoff.failures === 0;
    const query = usesLongPoll ? `?wait=${Math.min(MAX_LONG_POLL_SECONDS, Math.ceil(this.#pollInterval))}` : "";
    const headers = held === null ? {} : { "If-None-Match": `"${held.checksum}"` };
    return this.#transport.send(`${this.#url}${query}`, { headers }, this.#pollInterval + RESPONSE_TIMEOUT_SECONDS);
  }

  /** Use a response; throw an error that names the problem, if there is one. */
  #take({ status, text, etag, signingKey }, held) {
    if (status === 200 || status === 304) this.#holder.storeSigningKey(signingKey);
    if (status === 304 && held !== null) return this.#holder.confirm();
    if (status === 200) return this.#offer(text, readChecksum(etag));
    const message = errorMessage(text);
    if (status === 409 && errorCode(text) === "wrong_state") {
      this.#holder.end();
      throw new Error(`${message ?? "the study serves no policy"}; every unit gets the baseline`);
    }
    throw new Error(`the service answered ${status}${message ? `: ${message}` : ""}`);
  }

  /** Take the policy of a response if it can be verified; throw PolicyError if not. */
  #offer(text, checksum) {
    if (checksum === undefined && !hasChecksum(text)) {
      throw new PolicyError(
        "the answer cannot be checked: it needs a field sha256 or the document's SHA-256 as its ETag, and has neither; " +
          "let no proxy change it, or upgrade the service",
      );
    }
    this.#holder.offer(text, checksum);
  }
}

/** Return the checksum in an entity tag; undefined if a proxy changed the tag, or a browser hides it. */
function readChecksum(etag) {
  return /^(?:W\/)?"([0-9a-f]{64})/.exec(etag ?? "")?.[1];
}
