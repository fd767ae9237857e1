// The client: decides here and now, and talks to the service behind the caller's back.

import { Backoff, CLOCK, LEAST } from "./backoff.mjs";
import { Holder, Remembered } from "./holder.mjs";
import { Journal, explained } from "./journal.mjs";
import { Outbox, checkEvent } from "./outbox.mjs";
import { BadPolicy, checkUnit, hasChecksum, shown } from "./policy.mjs";
import { Requests, codeOf, messageOf } from "./requests.mjs";
import { BATCH, Sender } from "./sender.mjs";

/** Seconds for an answer, beyond what the service was asked to wait. */
const PATIENCE = 10;
/** Seconds that the service holds a request at most. */
const LONGEST_WAIT = 60;
const CLOSING = 5;

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

const RENAMED_OPTIONS = {
  refresh: "pollInterval",
  flush: "flushInterval",
  buffer: "maxBufferedEvents",
  remember: "decisionCacheSize",
  key: "apiKey",
};

/** Assigns units to candidates and reports what happened: never blocks, never throws, never gives up. */
export class Client {
  #address;
  #requests;
  #clock;
  #pollInterval;
  #flushInterval;
  #default;
  #holder;
  #decisions;
  #outbox;
  #sender;
  #journal;
  #backoff;
  #stop = new AbortController();
  #started = null;
  #handle = (...told) => this.#measure(...told);

  constructor({
    url,
    study,
    apiKey,
    baseline,
    fetch = globalThis.fetch,
    pollInterval = 20,
    flushInterval = 1,
    maxBufferedEvents = 100_000,
    decisionCacheSize = 50_000,
    onError,
    clock = CLOCK,
    random = Math.random,
    ...unknown
  }) {
    for (const name of Object.keys(unknown)) {
      const hint = RENAMED_OPTIONS[name] ? `; it is now called ${RENAMED_OPTIONS[name]}` : "";
      throw new TypeError(`there is no option ${name}${hint}`);
    }
    if (typeof study !== "string" || study === "") throw new TypeError(`study must be a name, got ${shown(study)}`);
    if (!/^https?:$/.test(new URL(url).protocol)) throw new TypeError(`url must be http or https, got ${shown(url)}`);
    const { signal } = this.#stop;
    this.#address = `${String(url).replace(/\/+$/, "")}/v1/studies/${encodeURIComponent(study)}`;
    this.#requests = new Requests(fetch, apiKey, signal);
    this.#clock = clock;
    this.#pollInterval = atLeast("pollInterval", pollInterval, 0.001);
    this.#flushInterval = atLeast("flushInterval", flushInterval, 0.001);
    const values = Object.freeze({ ...baseline });
    this.#default = Object.freeze({ arm: "none", candidate: null, name: "baseline", values, propensity: 0 });
    this.#holder = new Holder(study, clock.now);
    this.#decisions = new Remembered(atLeast("decisionCacheSize", decisionCacheSize, 1));
    this.#outbox = new Outbox(atLeast("maxBufferedEvents", maxBufferedEvents, 1), ({ unit }) => this.#decisions.forget(unit));
    this.#journal = new Journal(onError);
    this.#backoff = new Backoff(random);
    this.#sender = new Sender({
      holder: this.#holder,
      outbox: this.#outbox,
      requests: this.#requests,
      address: `${this.#address}/events`,
      journal: this.#journal,
      clock,
      random,
      stop: signal,
    });
  }

  /** Begin to keep the policy up to date and to send; resolves after the first answer to whether there is a policy. */
  start() {
    this.#started ??= this.#begin();
    return this.#started;
  }

  /** Wait for a policy to decide by; resolves to whether there is one that has not expired. */
  async waitUntilReady(seconds = 5) {
    await this.#within(seconds, this.#holder.arrival());
    return !this.#stop.signal.aborted && this.#holder.fresh;
  }

  /** The unit's candidate, and its exposure logged: once for each unit and policy, however often it is asked. */
  assign(unit, options) {
    try {
      unit = plainUnit(unit);
      const [cell, version, reason] = this.#choose(unit, options?.override);
      const known = this.#decisions.get(unit);
      if (known?.reason === reason && known.version === version && known.name === cell.name) return known;
      const assignment = new Assignment(this.#handle, unit, cell, version, reason);
      if (this.#stop.signal.aborted) return assignment;
      this.#decisions.put(unit, assignment);
      this.#outbox.expose(assignment);
      this.#nudge();
      return assignment;
    } catch (error) {
      this.#journal.note(`a unit was given the baseline: ${explained(error)}`);
      const { policy } = this.#holder;
      return new Assignment(this.#handle, "", policy?.baseline ?? this.#default, policy?.version ?? 0, "DEFAULT");
    }
  }

  /** Say what happened to a unit; it is credited to what the unit was served last. Never throws. */
  track(unit, event, fields) {
    try {
      unit = plainUnit(unit);
    } catch (error) {
      this.#journal.refuse(error.message);
      return;
    }
    this.#measure(unit, this.#decisions.get(unit), event, fields);
  }

  /** Send what is waiting now; resolves to whether the service has answered for all of it. Never rejects. */
  flush() {
    return this.#sender.flush();
  }

  /** Send what is waiting, then stop; from then on every unit gets the baseline. Resolves to whether all arrived. */
  async close(seconds = CLOSING) {
    if (!this.#stop.signal.aborted) {
      await this.#within(seconds, this.flush());
      this.#stop.abort();
    }
    return this.#outbox.settled;
  }

  /** What the client holds and how it fares. */
  status() {
    const { policy, fresh, age } = this.#holder;
    const accounts = this.#outbox.accounts();
    const lines = Object.values(accounts).flatMap((version) => Object.values(version));
    const serving = policy !== null && !this.#stop.signal.aborted;
    return {
      version: policy?.version ?? 0,
      age,
      reason: !serving ? "DEFAULT" : fresh ? "SPLIT" : "STALE",
      buffered: this.#outbox.pending,
      dropped: lines.reduce((sum, line) => sum + line.dropped, 0),
      droppedMetrics: this.#outbox.droppedMetrics,
      rejected: Object.fromEntries(this.#journal.refused),
      errors: this.#journal.errors,
      lastError: this.#journal.lastError,
      accounts,
    };
  }

  #choose(unit, override) {
    const { policy, fresh } = this.#holder;
    if (policy === null) return [this.#default, 0, "DEFAULT"];
    if (this.#stop.signal.aborted) return [policy.baseline, policy.version, "DEFAULT"];
    if (!fresh) return [policy.baseline, policy.version, "STALE"];
    if (override === undefined || override === null) return [policy.draw(unit), policy.version, "SPLIT"];
    const cell = policy.named(override);
    if (cell !== undefined) return [cell, policy.version, "OVERRIDE"];
    const message = `override ${shown(override)} is no candidate of version ${policy.version}`;
    this.#journal.note(`${message}: the baseline is served`);
    return [policy.baseline, policy.version, "DEFAULT"];
  }

  #measure(unit, assignment, event, fields) {
    try {
      if (this.#stop.signal.aborted) throw new TypeError("the client is closed");
      if (unit === "") throw new TypeError("the event belongs to no unit");
      this.#outbox.measure(unit, assignment, event, checkEvent(event, fields));
      this.#nudge();
    } catch (error) {
      this.#journal.refuse(error?.message ?? String(error));
    }
  }

  /** A full batch need not wait for its time. */
  #nudge() {
    if (this.#started !== null && !this.#sender.failing && this.#outbox.waiting >= BATCH) this.#sender.flush();
  }

  async #begin() {
    const wait = await this.#poll();
    this.#keepPolling(wait);
    this.#sender.run(this.#flushInterval);
    return this.#holder.fresh;
  }

  async #keepPolling(wait) {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#clock.sleep(wait, signal);
      if (!signal.aborted) wait = await this.#poll();
    }
  }

  /** Ask for the policy once; resolves to the seconds until the next time. */
  async #poll() {
    const began = this.#clock.now();
    const held = this.#holder.policy;
    let answer;
    try {
      // After a failure without `wait`: something on the way may not let a request rest.
      const patient = held !== null && this.#backoff.failures === 0;
      const asked = patient ? `?wait=${Math.min(LONGEST_WAIT, Math.ceil(this.#pollInterval))}` : "";
      const headers = held === null ? {} : { "If-None-Match": `"${held.checksum}"` };
      answer = await this.#requests.ask(`${this.#address}/policy${asked}`, { headers }, this.#pollInterval + PATIENCE);
      if (answer.status === 200 || answer.status === 304) this.#holder.keepSigningKey(answer.signingKey);
      if (answer.status === 304 && held !== null) this.#holder.confirm();
      else if (answer.status === 200) this.#offer(answer);
      else if (answer.status === 409 && codeOf(answer.text) === "wrong_state") {
        this.#holder.end();
        throw new Error(`${messageOf(answer.text) ?? "the study serves no policy"}; every unit gets the baseline`);
      } else {
        const said = messageOf(answer.text);
        throw new Error(`the service answered ${answer.status}${said ? `: ${said}` : ""}`);
      }
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#journal.note(`no policy was read: ${explained(error)}`);
      return this.#backoff.failed(answer?.retryAfter);
    }
    this.#backoff.succeeded();
    // A service that says at once that nothing changed does not hold the line, so we keep the pace ourselves.
    const rested = this.#clock.now() - began > this.#pollInterval / 2;
    return held !== this.#holder.policy || rested ? LEAST : this.#pollInterval * this.#backoff.jitter();
  }

  /** Take the policy of an answer if it can be checked; throws BadPolicy. */
  #offer({ text, tag }) {
    const checksum = checksumOf(tag);
    if (checksum === undefined && !hasChecksum(text)) {
      throw new BadPolicy(
        "the answer cannot be checked: it needs a field sha256 or the document's SHA-256 as its ETag, and has neither; " +
          "let no proxy change it, or upgrade the service",
      );
    }
    this.#holder.offer(text, checksum);
  }

  /** Wait for a promise, but not longer than this. */
  async #within(seconds, promise) {
    const patience = new AbortController();
    await Promise.race([promise, this.#clock.sleep(seconds, patience.signal)]);
    patience.abort();
  }
}

/** A unit as it is drawn for and sent; a whole number is taken as its digits. */
function plainUnit(unit) {
  const plain = typeof unit === "bigint" || Number.isSafeInteger(unit) ? String(unit) : unit;
  checkUnit(plain);
  return plain;
}

/** The checksum in an entity tag; undefined if a proxy changed the tag, or a browser hides it. */
function checksumOf(tag) {
  return /^(?:W\/)?"([0-9a-f]{64})/.exec(tag ?? "")?.[1];
}

function atLeast(name, value, least) {
  if (typeof value === "number" && value >= least && value < Infinity) return value;
  throw new TypeError(`${name} must be a number of at least ${least}, got ${shown(value)}`);
}
