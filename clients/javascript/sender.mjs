// Brings events to the service: in batches, again and again with the same ids, until each is answered for.

import { Backoff, LEAST } from "./backoff.mjs";
import { explained } from "./journal.mjs";
import { codeOf, messageOf, parsed } from "./requests.mjs";

export const BATCH = 1000;
/** Seconds for an answer. */
const PATIENCE = 10;
/** Characters up to which a browser lets a request outlive its page. */
const SMALL = 20_000;

/** Sends what waits in the outbox, one batch at a time. */
export class Sender {
  #holder;
  #outbox;
  #requests;
  #address;
  #journal;
  #clock;
  #stop;
  #backoff;
  #batch = null;
  #limit = BATCH;
  #tried = -Infinity;
  #draining = null;

  constructor({ holder, outbox, requests, address, journal, clock, random, stop }) {
    this.#holder = holder;
    this.#outbox = outbox;
    this.#requests = requests;
    this.#address = address;
    this.#journal = journal;
    this.#clock = clock;
    this.#stop = stop;
    this.#backoff = new Backoff(random);
    /** Seconds to wait after the last failure. */
    this.retryIn = 0;
  }

  /** Whether the last try failed. */
  get failing() {
    return this.#backoff.failures > 0;
  }

  /** Send all that waits; resolves to whether the service has answered for it. Never rejects. */
  flush() {
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = null;
    });
    return this.#draining;
  }

  /** Send for as long as nobody says stop, every so many seconds. */
  async run(every) {
    let wait = every;
    while (!this.#stop.aborted) {
      await this.#clock.sleep(wait, this.#stop);
      if (this.#stop.aborted) return;
      wait = (await this.flush()) ? every * this.#backoff.jitter() : this.retryIn;
    }
  }

  async #drain() {
    while (!this.#outbox.settled) {
      const rest = this.#tried + LEAST - this.#clock.now();
      if (this.failing && rest > 0) await this.#clock.sleep(rest, this.#stop);
      if (this.#stop.aborted || !(await this.#send())) return false;
    }
    return true;
  }

  /** Send one batch; only an answer that accounts for it settles it, and until then it is sent again as it is. */
  async #send() {
    this.#batch ??= this.#write();
    const { body } = this.#batch;
    this.#tried = this.#clock.now();
    let answer;
    try {
      const headers = { "Content-Type": "application/json" };
      const request = { method: "POST", headers, body, keepalive: body.length < SMALL };
      answer = await this.#requests.ask(this.#address, request, PATIENCE);
      this.#learn(answer, this.#batch);
    } catch (error) {
      if (!this.#stop.aborted) this.#journal.note(`events could not be sent: ${explained(error)}`);
      this.retryIn = this.#backoff.failed(answer?.retryAfter);
      return false;
    }
    this.#batch = null;
    this.#backoff.succeeded();
    return true;
  }

  /** The next batch, with the books behind the last events that wait. */
  #write() {
    const events = this.#outbox.take(this.#limit).map((event) => this.#holder.sign(event));
    const whole = this.#limit === BATCH || events.length === 0;
    const tallies = whole && this.#outbox.waiting === 0 ? this.#outbox.tallies() : [];
    const body = JSON.stringify([...events, ...tallies.map(({ wire }) => wire)]);
    return { body, count: events.length, tallies };
  }

  /** Settle a batch by what the service says of it; throws where it says nothing. */
  #learn(answer, { count, tallies }) {
    const told = accountOf(answer, count + tallies.length);
    if (told !== null) {
      const refused = new Set(told.rejected.map(({ index }) => index));
      this.#outbox.settle(refused);
      this.#outbox.told(tallies);
      this.#limit = Math.min(BATCH, this.#limit * 2);
      for (const { reason } of told.rejected) this.#journal.refuse(String(reason));
    } else if (isAboutTheBatch(answer)) {
      this.#split(count, tallies, answer.status);
    } else {
      const said = messageOf(answer.text);
      const why = said ? `: ${said}` : "";
      throw new Error(`the service answered ${answer.status} and does not account for the events${why}`);
    }
  }

  /** A batch that the service will not take at all is cut in half, until what is at fault is alone and let go. */
  #split(count, tallies, status) {
    if (count + tallies.length > 1 && count > 0) {
      this.#outbox.putBack();
      this.#limit = Math.max(1, Math.floor(count / 2));
      return;
    }
    this.#journal.refuse(`the service answered ${status} to a single event`);
    this.#outbox.settle(new Set([0]));
    this.#outbox.told(tallies);
  }
}

/** What the service says of a batch; null if it does not account for so many events. */
function accountOf({ status, text }, events) {
  if (status !== 200 && status !== 422) return null;
  const told = parsed(text);
  if (!isCount(told?.accepted) || !isCount(told.duplicates) || !Array.isArray(told.rejected)) return null;
  const places = new Set(told.rejected.map((item) => item?.index));
  const sound = [...places].every((place) => isCount(place) && place < events);
  return sound && told.accepted + told.duplicates + places.size === events ? told : null;
}

function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0;
}

/** Whether it is what was sent that the service will not take, and not something on the way. */
function isAboutTheBatch({ status, text }) {
  return status === 413 || ((status === 400 || status === 422) && codeOf(text) !== null);
}
