// The client: decides here and now, and talks to the service behind the caller's back.

import { Backoff, CLOCK, LEAST } from "./backoff.mjs";
import { Holder, Remembered } from "./holder.mjs";
import { Outbox, checkEvent } from "./outbox.mjs";
import { checkUnit, shown } from "./policy.mjs";

const BATCH = 1000;
/** Seconds for an answer, beyond what the service was asked to wait. */
const PATIENCE = 10;
const CLOSING = 5;
/** Seconds that the service holds a request at most. */
const LONGEST_WAIT = 60;
const REASONS = 100;
/** Characters up to which a browser lets a request outlive its page. */
const SMALL = 20_000;

/** One unit's candidate: the values to use, why, and with what probability they were drawn. */
class Assignment {
  #measure;

  constructor(measure, unit, cell, version, reason) {
    this.#measure = measure;
    this.unit = unit;
    this.values = cell.values;
    this.name = cell.name;
    this.candidate = cell.candidate;
    this.version = version;
    this.propensity = cell.propensity;
    this.arm = cell.arm;
    this.reason = reason;
    Object.freeze(this);
  }

  /** Say what happened to the unit under this decision; never throws. */
  track(event, fields) {
    this.#measure(this.unit, this, event, fields);
  }
}

/** Assigns units to candidates and reports what happened: never blocks, never throws, never gives up. */
export class Client {
  #address;
  #headers;
  #fetch;
  #clock;
  #refresh;
  #flush;
  #onError;
  #default;
  #holder;
  #remembered;
  #outbox;
  #polling;
  #sending;
  #stop = new AbortController();
  #started = false;
  #closed = false;
  #batch = null;
  #limit = BATCH;
  #tried = -Infinity;
  #draining = null;
  #errors = 0;
  #lastError = null;
  #refused = new Map();
  #retryIn = 0;
  #handle = (...told) => this.#measure(...told);

  constructor({
    url,
    study,
    key,
    baseline,
    fetch = globalThis.fetch,
    refresh = 20,
    flush = 1,
    buffer = 10_000,
    remember = 10_000,
    onError,
    clock = CLOCK,
    random = Math.random,
  }) {
    if (typeof study !== "string" || study === "") throw new TypeError(`study must be a name, got ${shown(study)}`);
    if (!/^https?:$/.test(new URL(url).protocol)) throw new TypeError(`url must be http or https, got ${shown(url)}`);
    this.#address = `${String(url).replace(/\/+$/, "")}/v1/studies/${encodeURIComponent(study)}`;
    this.#headers = key === undefined ? {} : { Authorization: `Bearer ${key}` };
    this.#fetch = fetch;
    this.#clock = clock;
    this.#refresh = atLeast("refresh", refresh, 0.001);
    this.#flush = atLeast("flush", flush, 0.001);
    this.#onError = onError;
    const values = Object.freeze({ ...baseline });
    this.#default = Object.freeze({ arm: "none", candidate: null, name: "baseline", values, propensity: 0 });
    this.#holder = new Holder(study, clock.now);
    this.#remembered = new Remembered(atLeast("remember", remember, 1));
    this.#outbox = new Outbox(atLeast("buffer", buffer, 1), ({ unit }) => this.#remembered.forget(unit));
    this.#polling = new Backoff(random);
    this.#sending = new Backoff(random);
  }

  /** Begin to keep the policy up to date and to send; resolves after the first answer, whatever that is. */
  async start() {
    if (this.#started || this.#closed) return this.#holder.fresh;
    this.#started = true;
    const wait = await this.#poll();
    this.#keepPolling(wait);
    this.#keepSending();
    return this.#holder.fresh;
  }

  /** Wait for a policy to decide by; resolves to whether there is one that has not expired. */
  async ready(seconds = 5) {
    const patience = new AbortController();
    await Promise.race([this.#holder.arrival(), this.#clock.sleep(seconds, patience.signal)]);
    patience.abort();
    return !this.#closed && this.#holder.fresh;
  }

  /** The unit's candidate, and its exposure logged: once for each unit and policy, however often it is asked. */
  assign(unit, { override } = {}) {
    try {
      unit = plainUnit(unit);
      const [cell, version, reason] = this.#choose(unit, override);
      const known = this.#remembered.get(unit);
      if (known?.reason === reason && known.version === version && known.name === cell.name) return known;
      const assignment = new Assignment(this.#handle, unit, cell, version, reason);
      if (this.#closed) return assignment;
      this.#remembered.put(unit, assignment);
      this.#outbox.expose(assignment);
      this.#nudge();
      return assignment;
    } catch (error) {
      this.#note(`a unit was given the baseline: ${error?.message ?? error}`);
      const policy = this.#holder.policy;
      return new Assignment(this.#handle, "", policy?.baseline ?? this.#default, policy?.version ?? 0, "DEFAULT");
    }
  }

  /** Say what happened to a unit; it is credited to what the unit was served last. Never throws. */
  track(unit, event, fields) {
    try {
      unit = plainUnit(unit);
    } catch (error) {
      this.#refuse(error.message);
      return;
    }
    this.#measure(unit, this.#remembered.get(unit), event, fields);
  }

  /** Send what is waiting now; resolves to whether the service has answered for all of it. Never rejects. */
  flush() {
    this.#draining ??= this.#drain().finally(() => {
      this.#draining = null;
    });
    return this.#draining;
  }

  /** Send what is waiting, then stop; from then on every unit gets the baseline. Resolves to whether all arrived. */
  async close(seconds = CLOSING) {
    if (!this.#closed) {
      const patience = new AbortController();
      await Promise.race([this.flush(), this.#clock.sleep(seconds, patience.signal)]);
      patience.abort();
      this.#closed = true;
      this.#stop.abort();
    }
    return this.#outbox.settled;
  }

  /** What the client holds and how it fares. */
  status() {
    const { policy, fresh, age } = this.#holder;
    const accounts = this.#outbox.accounts();
    const lines = Object.values(accounts).flatMap((version) => Object.values(version));
    return {
      version: policy?.version ?? 0,
      age,
      reason: policy === null || this.#closed ? "DEFAULT" : fresh ? "SPLIT" : "STALE",
      buffered: this.#outbox.pending,
      dropped: lines.reduce((sum, line) => sum + line.dropped, 0),
      droppedMetrics: this.#outbox.droppedMetrics,
      refused: Object.fromEntries(this.#refused),
      errors: this.#errors,
      lastError: this.#lastError,
      accounts,
    };
  }

  #measure(unit, assignment, event, fields) {
    try {
      if (this.#closed) throw new TypeError("the client is closed");
      if (unit === "") throw new TypeError("the event belongs to no unit");
      this.#outbox.measure(unit, assignment, event, checkEvent(event, fields));
      this.#nudge();
    } catch (error) {
      this.#refuse(error?.message ?? String(error));
    }
  }

  #choose(unit, override) {
    const { policy } = this.#holder;
    if (policy === null) return [this.#default, 0, "DEFAULT"];
    if (this.#closed) return [policy.baseline, policy.version, "DEFAULT"];
    if (!this.#holder.fresh) return [policy.baseline, policy.version, "STALE"];
    if (override === undefined || override === null) return [policy.draw(unit), policy.version, "SPLIT"];
    const cell = policy.named(override);
    if (cell !== undefined) return [cell, policy.version, "OVERRIDE"];
    this.#note(`override ${shown(override)} is no candidate of version ${policy.version}: the baseline is served`);
    return [policy.baseline, policy.version, "DEFAULT"];
  }

  // The policy

  async #keepPolling(wait) {
    while (!this.#closed) {
      await this.#clock.sleep(wait, this.#stop.signal);
      if (!this.#closed) wait = await this.#poll();
    }
  }

  /** Ask for the policy once; resolves to the seconds until the next time. */
  async #poll() {
    const began = this.#clock.now();
    const held = this.#holder.policy;
    let retryAfter;
    try {
      // After a failure without `wait`: something on the way may not let a request rest.
      const patient = held !== null && this.#polling.failures === 0;
      const asked = patient ? `?wait=${Math.min(LONGEST_WAIT, Math.ceil(this.#refresh))}` : "";
      const headers = held === null ? this.#headers : { ...this.#headers, "If-None-Match": `"${held.checksum}"` };
      const answer = await this.#ask(`${this.#address}/policy${asked}`, { headers }, this.#refresh + PATIENCE);
      retryAfter = answer.retryAfter;
      if (answer.status === 304 && held !== null) this.#holder.confirm();
      else if (answer.status === 200) this.#holder.offer(answer.text, checksumOf(answer.tag));
      else throw new Error(`the service answered ${answer.status} when asked for the policy`);
    } catch (error) {
      if (!this.#closed) this.#note(`the policy could not be read: ${error?.message ?? error}`);
      return this.#polling.failed(retryAfter);
    }
    this.#polling.succeeded();
    // A service that answers at once that nothing changed does not hold the line, so we keep the pace ourselves.
    const waited = this.#clock.now() - began;
    return held !== this.#holder.policy || waited > this.#refresh / 2 ? LEAST : this.#refresh * this.#polling.jitter();
  }

  // The events

  #nudge() {
    if (this.#started && this.#sending.failures === 0 && this.#outbox.waiting >= BATCH) this.flush();
  }

  async #keepSending() {
    let wait = this.#flush;
    while (!this.#closed) {
      await this.#clock.sleep(wait, this.#stop.signal);
      if (this.#closed) return;
      const arrived = await this.flush();
      wait = arrived ? this.#flush * this.#sending.jitter() : this.#retryIn;
    }
  }

  async #drain() {
    while (this.#batch !== null || !this.#outbox.settled) {
      if (this.#sending.failures > 0) {
        const rest = this.#tried + LEAST - this.#clock.now();
        if (rest > 0) await this.#clock.sleep(rest, this.#stop.signal);
      }
      if (this.#closed || !(await this.#send())) return this.#outbox.settled;
    }
    return true;
  }

  /** Send one batch; only an answer that accounts for it settles it, and until then it is sent again as it is. */
  async #send() {
    this.#batch ??= this.#write();
    const { body, count, tallies } = this.#batch;
    this.#tried = this.#clock.now();
    let answer;
    try {
      const headers = { ...this.#headers, "Content-Type": "application/json" };
      const request = { method: "POST", headers, body, keepalive: body.length < SMALL };
      answer = await this.#ask(`${this.#address}/events`, request, PATIENCE);
      const told = accountOf(answer);
      if (told !== null) {
        for (const { reason } of told.refused) this.#refuse(String(reason));
        this.#outbox.settle(new Set(told.refused.map(({ index }) => index)));
        this.#outbox.told(tallies);
        this.#limit = Math.min(BATCH, this.#limit * 2);
      } else if (isAboutTheBatch(answer)) {
        this.#split(count, tallies, answer.status);
      } else {
        throw new Error(`the service answered ${answer.status} and does not account for the events`);
      }
    } catch (error) {
      if (!this.#closed) this.#note(`events could not be sent: ${error?.message ?? error}`);
      this.#retryIn = this.#sending.failed(answer?.retryAfter);
      return false;
    }
    this.#batch = null;
    this.#sending.succeeded();
    return true;
  }

  /** The next batch, with the books behind the last events that wait. */
  #write() {
    const events = this.#outbox.take(this.#limit);
    const whole = this.#limit === BATCH || events.length === 0;
    const tallies = whole && this.#outbox.waiting === 0 ? this.#outbox.tallies() : [];
    return {
      body: JSON.stringify([...events, ...tallies.map(({ wire }) => wire)]),
      count: events.length,
      tallies,
    };
  }

  /** A batch that the service will not take at all is cut in half, until what is at fault is alone and let go. */
  #split(count, tallies, status) {
    if (count + tallies.length <= 1 || count === 0) {
      this.#refuse(`the service answered ${status} to one event`);
      this.#outbox.settle(new Set([0]));
      this.#outbox.told(tallies);
      return;
    }
    this.#outbox.putBack();
    this.#limit = Math.max(1, Math.floor(count / 2));
  }

  /** One request, within its deadline and without following anybody elsewhere with the key. */
  async #ask(address, request, seconds) {
    const deadline = new AbortController();
    const giveUp = () => deadline.abort();
    const timer = setTimeout(giveUp, seconds * 1000);
    this.#stop.signal.addEventListener("abort", giveUp);
    try {
      const settings = { ...request, redirect: "error", cache: "no-store", credentials: "omit", signal: deadline.signal };
      const answer = await this.#fetch.call(globalThis, address, settings);
      const text = answer.status === 304 ? "" : await answer.text();
      return {
        status: answer.status,
        text,
        tag: answer.headers.get("etag"),
        retryAfter: answer.headers.get("retry-after"),
      };
    } finally {
      clearTimeout(timer);
      this.#stop.signal.removeEventListener("abort", giveUp);
    }
  }

  #refuse(reason) {
    // Reasons may name what differs each time; a client that runs for months must not collect them all.
    const known = this.#refused.has(reason) || this.#refused.size < REASONS ? reason : "others";
    this.#refused.set(known, (this.#refused.get(known) ?? 0) + 1);
    this.#tell(reason);
  }

  #note(message) {
    this.#errors += 1;
    this.#lastError = message;
    this.#tell(message);
  }

  #tell(message) {
    try {
      this.#onError?.(message);
    } catch {
      // What the caller's own listener throws is not the decision's problem.
    }
  }
}

/** A unit as it is drawn for and sent; a whole number is taken as its digits. */
function plainUnit(unit) {
  const plain = typeof unit === "bigint" || Number.isSafeInteger(unit) ? String(unit) : unit;
  checkUnit(plain);
  return plain;
}

/** The checksum in an entity tag; undefined where a proxy made the tag its own. */
function checksumOf(tag) {
  return /^(?:W\/)?"([0-9a-f]{64})"$/.exec(tag ?? "")?.[1];
}

/** What the service says of a batch; null where it says nothing of it. */
function accountOf({ status, text }) {
  if (status !== 200 && status !== 422) return null;
  try {
    const told = JSON.parse(text);
    return Number.isInteger(told?.accepted) && Array.isArray(told.refused) ? told : null;
  } catch {
    return null;
  }
}

/** Whether it is what was sent that the service will not take, and not something on the way. */
function isAboutTheBatch({ status, text }) {
  if (status === 413) return true;
  try {
    return (status === 400 || status === 422) && typeof JSON.parse(text)?.error?.code === "string";
  } catch {
    return false;
  }
}

function atLeast(name, value, least) {
  if (typeof value === "number" && value >= least && value < Infinity) return value;
  throw new TypeError(`${name} must be a number of at least ${least}, got ${shown(value)}`);
}
