// Sender of events: batches with fixed ids, repeated until the service accounts for every event.

import { describeError } from "./diagnostics.mjs";
import { errorCode, errorMessage, parseJson } from "./http_transport.mjs";

const FIRST_WAIT_SECONDS = 2;
/** Longest wait, so that a service that is back is found within half a minute. */
const MAX_WAIT_SECONDS = 30;
/** Shortest time between two requests of one kind. */
export const MIN_INTERVAL_SECONDS = 1;

/** Exponential back-off with jitter: each wait is between half and all of twice the wait before. */
export class Backoff {
  #random;

  constructor(random) {
    this.#random = random;
    this.failures = 0;
  }

  /** Count a failure and return the seconds to wait; Retry-After counts up to MAX_WAIT_SECONDS. */
  fail(retryAfter) {
    const longest = Math.min(MAX_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** Math.min(this.failures, 10));
    this.failures += 1;
    const wait = (longest * (1 + this.#random())) / 2;
    return /^\d+$/.test(retryAfter ?? "") ? Math.max(wait, Math.min(Number(retryAfter), MAX_WAIT_SECONDS)) : wait;
  }

  /** Start again with the first wait. */
  succeed() {
    this.failures = 0;
  }

  /** Return a factor between 0.8 and 1, so that many clients do not act at the same moment. */
  jitter() {
    return 0.8 + 0.2 * this.#random();
  }
}

/** Most events in one request. */
export const MAX_BATCH_EVENTS = 1000;
/** Time for a whole response. */
const RESPONSE_TIMEOUT_SECONDS = 10;
/** Size up to which a browser lets a request outlive its page. */
const MAX_KEEPALIVE_CHARACTERS = 20_000;

/** Sender of the buffered events, one batch at a time. */
export class EventSender {
  #holder;
  #buffer;
  #transport;
  #url;
  #errorLog;
  #clock;
  #stop;
  #backoff;
  #batch = null;
  #limit = MAX_BATCH_EVENTS;
  #lastAttempt = -Infinity;
  #retrySeconds = 0;
  #draining = null;

  constructor({ holder, buffer, transport, url, errorLog, clock, random, stop }) {
    this.#holder = holder;
    this.#buffer = buffer;
    this.#transport = transport;
    this.#url = url;
    this.#errorLog = errorLog;
    this.#clock = clock;
    this.#stop = stop;
    this.#backoff = new Backoff(random);
  }

  /** True if the last attempt failed. */
  get isFailing() {
    return this.#backoff.failures > 0;
  }

  /** Send all waiting events; resolve to whether the service accounted for them. Never rejects. */
  flush() {
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = null;
    });
    return this.#draining;
  }

  /** Send every `flushInterval` seconds until the stop signal. */
  async run(flushInterval) {
    let wait = flushInterval;
    while (!this.#stop.aborted) {
      await this.#clock.sleep(wait, this.#stop);
      if (this.#stop.aborted) return;
      wait = (await this.flush()) ? flushInterval * this.#backoff.jitter() : this.#retrySeconds;
    }
  }

  async #drain() {
    while (!this.#buffer.isSettled) {
      const wait = this.#lastAttempt + MIN_INTERVAL_SECONDS - this.#clock.now();
      if (this.isFailing && wait > 0) await this.#clock.sleep(wait, this.#stop);
      if (this.#stop.aborted || !(await this.#send())) return false;
    }
    return true;
  }

  /** Send one batch; it is repeated unchanged until a response accounts for it. */
  async #send() {
    this.#batch ??= this.#write();
    const { body } = this.#batch;
    this.#lastAttempt = this.#clock.now();
    let response;
    try {
      const headers = { "Content-Type": "application/json" };
      const request = { method: "POST", headers, body, keepalive: body.length < MAX_KEEPALIVE_CHARACTERS };
      response = await this.#transport.send(this.#url, request, RESPONSE_TIMEOUT_SECONDS);
      this.#settle(response, this.#batch);
    } catch (error) {
      if (!this.#stop.aborted) this.#errorLog.note(`events could not be sent: ${describeError(error)}`);
      this.#retrySeconds = this.#backoff.fail(response?.retryAfter);
      return false;
    }
    this.#batch = null;
    this.#backoff.succeed();
    return true;
  }

  /** Serialize the next batch, with the tallies after the last waiting events. */
  #write() {
    const events = this.#buffer.take(this.#limit).map((event) => this.#holder.sign(event));
    const hasFullLimit = this.#limit === MAX_BATCH_EVENTS || events.length === 0;
    const tallies = hasFullLimit && this.#buffer.waiting === 0 ? this.#buffer.changedTallies() : [];
    const body = JSON.stringify([...events, ...tallies.map(({ event }) => event)]);
    return { body, eventCount: events.length, tallies };
  }

  /** Settle a batch by the answer of the service; throw if the response does not account for it. */
  #settle(response, { eventCount, tallies }) {
    const rejected = readRejected(response, eventCount + tallies.length);
    if (rejected !== null) {
      this.#buffer.settle(new Set(rejected.map(({ index }) => index)));
      // A rejected tally would be rejected again; the next change makes a new one.
      this.#buffer.markReported(tallies);
      this.#limit = Math.min(MAX_BATCH_EVENTS, this.#limit * 2);
      for (const { reason } of rejected) this.#errorLog.refuse(String(reason));
    } else if (isBatchError(response)) {
      this.#split(eventCount, tallies, response.status);
    } else {
      const message = errorMessage(response.text);
      const detail = message ? `: ${message}` : "";
      throw new Error(`the service answered ${response.status} and does not account for the batch${detail}`);
    }
  }

  /** Send half of a batch that is rejected as a whole; drop an event that is rejected alone. */
  #split(eventCount, tallies, status) {
    if (eventCount + tallies.length > 1 && eventCount > 0) {
      this.#buffer.returnEvents();
      this.#limit = Math.max(1, Math.floor(eventCount / 2));
      return;
    }
    this.#errorLog.refuse(`the service answered ${status} to a single event`);
    this.#buffer.settle(new Set([0]));
    this.#buffer.markReported(tallies);
  }
}

/** Return the rejected events of an answer; null if the response does not account for all events. */
function readRejected({ status, text }, eventCount) {
  if (status !== 200 && status !== 422) return null;
  const answer = parseJson(text);
  if (!isCount(answer?.accepted) || !isCount(answer.duplicates) || !Array.isArray(answer.rejected)) return null;
  const places = new Set(answer.rejected.map((item) => item?.index));
  const areValid = [...places].every((place) => isCount(place) && place < eventCount);
  return areValid && answer.accepted + answer.duplicates + places.size === eventCount ? answer.rejected : null;
}

function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0;
}

/** Return whether the service rejects the batch itself; an error of a proxy is retried. */
function isBatchError({ status, text }) {
  return status === 413 || ((status === 400 || status === 422) && errorCode(text) !== null);
}
