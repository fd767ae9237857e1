// Client of a study: assigns units in this process and exchanges policies and events in the background.

import { SYSTEM_CLOCK, checkAmount, checkUnknown, studyAddress } from "./client_options.mjs";
import { Decision, checkFields } from "./decision.mjs";
import { ErrorLog, describeError } from "./diagnostics.mjs";
import { quoteValue } from "./errors.mjs";
import { EventBuffer } from "./event_buffer.mjs";
import { EventSender, MAX_BATCH_EVENTS } from "./event_sender.mjs";
import { HttpTransport } from "./http_transport.mjs";
import { checkUnit } from "./policy.mjs";
import { DecisionCache, PolicyHolder } from "./policy_holder.mjs";
import { PolicyPoller } from "./policy_poller.mjs";

const CLOSE_TIMEOUT_SECONDS = 5;

/** Client of one study: assigns units to candidates and sends events; its methods never block and never throw. */
export class Client {
  #clock;
  #flushInterval;
  #default;
  #holder;
  #decisions;
  /** Decisions of units that do not take part. They must not displace others, because most units may be among them. */
  #leftOut;
  #notEnrolled = 0;
  #notEnrolledEvents = 0;
  #buffer;
  #poller;
  #sender;
  #errorLog;
  #stop = new AbortController();
  #started = null;
  #onMetric = (...metric) => this.#sendMetric(...metric);

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
    clock = SYSTEM_CLOCK,
    random = Math.random,
    ...unknown
  }) {
    checkUnknown(unknown);
    const address = studyAddress(url, study);
    this.#clock = clock;
    this.#flushInterval = checkAmount("flushInterval", flushInterval, 0.001);
    const values = Object.freeze({ ...baseline });
    this.#default = Object.freeze({
      arm: "none",
      candidate: null,
      name: "baseline",
      values,
      propensity: 0,
      segment: null,
    });
    this.#holder = new PolicyHolder(study, clock.now);
    this.#decisions = new DecisionCache(checkAmount("decisionCacheSize", decisionCacheSize, 1));
    this.#leftOut = new DecisionCache(decisionCacheSize);
    this.#buffer = new EventBuffer(checkAmount("maxBufferedEvents", maxBufferedEvents, 1), ({ unit }) =>
      this.#decisions.forget(unit),
    );
    this.#errorLog = new ErrorLog(onError);
    const shared = {
      holder: this.#holder,
      transport: new HttpTransport(fetch, apiKey, this.#stop.signal),
      errorLog: this.#errorLog,
      clock,
      random,
      stop: this.#stop.signal,
    };
    this.#poller = new PolicyPoller({
      ...shared,
      url: `${address}/policy`,
      pollInterval: checkAmount("pollInterval", pollInterval, 0.001),
    });
    this.#sender = new EventSender({ ...shared, url: `${address}/events`, buffer: this.#buffer });
  }

  /** Start to poll and to send; resolve after the first answer to whether there is a policy. */
  start() {
    this.#started ??= this.#begin();
    return this.#started;
  }

  /** Wait for a policy; resolve to whether there is one that has not expired. */
  async waitUntilReady(seconds = 5) {
    await this.#waitAtMost(seconds, this.#holder.waitForPolicy());
    return !this.#stop.signal.aborted && this.#holder.isFresh;
  }

  /**
   * Return the candidate of a unit, and log its exposure once for each unit and policy.
   *
   * The study's audience and segments read `options.attributes`, and so does a study that assigns clusters. A unit that
   * does not take part gets the baseline with the arm
   * "not_enrolled", without an exposure, and no metric events are sent for it.
   */
  assign(unit, options) {
    try {
      unit = normalizeUnit(unit);
      const [bucket, version, reason] = this.#choose(unit, options?.override, options?.attributes);
      if (isLeftOut({ arm: bucket.arm, reason })) return this.#leaveOut(unit, bucket, version);
      this.#leftOut.forget(unit);
      const cached = this.#decisions.get(unit);
      const cluster = this.#holder.policy?.findCluster(options?.attributes) ?? null;
      const isSame = cached?.reason === reason && isSameDraw(cached, bucket, version);
      if (isSame && cached.cluster === cluster) return cached;
      const decision = new Decision(this.#onMetric, unit, bucket, version, reason, cluster);
      if (this.#stop.signal.aborted) return decision;
      this.#decisions.put(unit, decision);
      this.#buffer.addExposure(decision);
      this.#sendIfFull();
      return decision;
    } catch (error) {
      this.#errorLog.note(`a unit was given the baseline: ${describeError(error)}`);
      const { policy } = this.#holder;
      return new Decision(this.#onMetric, "", policy?.baseline ?? this.#default, policy?.version ?? 0, "DEFAULT");
    }
  }

  /** Send a metric event of a unit; it counts for the candidate that the unit was served last. Never throws. */
  track(unit, event, fields) {
    try {
      unit = normalizeUnit(unit);
    } catch (error) {
      this.#errorLog.refuse(error.message);
      return;
    }
    this.#sendMetric(unit, this.#leftOut.get(unit) ?? this.#decisions.get(unit), event, fields);
  }

  /** Send the waiting events now; resolve to whether the service accounted for all of them. Never rejects. */
  flush() {
    return this.#sender.flush();
  }

  /** Send the waiting events, then stop; resolve to whether all arrived. A closed client serves the baseline. */
  async close(seconds = CLOSE_TIMEOUT_SECONDS) {
    if (!this.#stop.signal.aborted) {
      await this.#waitAtMost(seconds, this.flush());
      this.#stop.abort();
    }
    return this.#buffer.isSettled;
  }

  /** Return the state of the client as plain values, for a health page, a metric or a log line. */
  status() {
    const { policy, isFresh, age } = this.#holder;
    const accounts = this.#buffer.countByCandidate();
    const candidates = Object.values(accounts).flatMap((version) => Object.values(version));
    const isServing = policy !== null && !this.#stop.signal.aborted;
    return {
      version: policy?.version ?? 0,
      age,
      reason: !isServing ? "DEFAULT" : isFresh ? "SPLIT" : "STALE",
      buffered: this.#buffer.pending,
      dropped: candidates.reduce((sum, { dropped }) => sum + dropped, 0),
      droppedMetrics: this.#buffer.droppedMetrics,
      notEnrolled: this.#notEnrolled,
      notEnrolledEvents: this.#notEnrolledEvents,
      rejected: Object.fromEntries(this.#errorLog.refused),
      errors: this.#errorLog.errors,
      lastError: this.#errorLog.lastError,
      accounts,
    };
  }

  /** Return the bucket of a unit, the version of the policy, and the reason. */
  #choose(unit, override, attributes) {
    const { policy, isFresh } = this.#holder;
    if (policy === null) return [this.#default, 0, "DEFAULT"];
    if (this.#stop.signal.aborted) return [policy.baseline, policy.version, "DEFAULT"];
    const isDrawn = override === undefined || override === null;
    if (isDrawn && (isFresh || policy.isPartial)) {
      const bucket = policy.draw(unit, attributes);
      // Also if the policy has expired: an outage makes no exposures of units that do not take part.
      if (bucket === policy.notEnrolled) return [bucket, policy.version, "DEFAULT"];
      if (isFresh) return [bucket, policy.version, "SPLIT"];
    }
    if (!isFresh) return [policy.baseline, policy.version, "STALE"];
    const bucket = policy.named(override);
    if (bucket !== undefined) return [bucket, policy.version, "OVERRIDE"];
    const problem = `override ${quoteValue(override)} is not a candidate of version ${policy.version}`;
    this.#errorLog.note(`${problem}; the baseline is served`);
    return [policy.baseline, policy.version, "DEFAULT"];
  }

  /** Return the decision of a unit that does not take part; it has no exposure. */
  #leaveOut(unit, bucket, version) {
    const decision = new Decision(this.#onMetric, unit, bucket, version, "DEFAULT");
    this.#notEnrolled += 1;
    this.#leftOut.put(unit, decision);
    return decision;
  }

  #sendMetric(unit, decision, event, fields) {
    try {
      if (this.#stop.signal.aborted) throw new TypeError("the client is closed");
      if (unit === "") throw new TypeError("the event has no unit");
      if (decision !== undefined && isLeftOut(decision)) {
        this.#notEnrolledEvents += 1;
        return;
      }
      this.#buffer.addMetric(unit, decision, event, checkFields(event, fields));
      this.#sendIfFull();
    } catch (error) {
      this.#errorLog.refuse(error?.message ?? String(error));
    }
  }

  /** Send a full batch without waiting for the flush interval. */
  #sendIfFull() {
    const isFull = this.#buffer.waiting >= MAX_BATCH_EVENTS;
    if (this.#started !== null && !this.#sender.isFailing && isFull) this.#sender.flush();
  }

  async #begin() {
    const waitSeconds = await this.#poller.poll();
    this.#poller.run(waitSeconds);
    this.#sender.run(this.#flushInterval);
    return this.#holder.isFresh;
  }

  /** Wait for a promise, at most `seconds`. */
  async #waitAtMost(seconds, promise) {
    const timer = new AbortController();
    await Promise.race([promise, this.#clock.sleep(seconds, timer.signal)]);
    timer.abort();
  }
}

/** Return whether a decision has the version, candidate and segment of a bucket. */
function isSameDraw(decision, { name, segment }, version) {
  return decision.version === version && decision.name === name && decision.segment === segment;
}

/** Return whether a decision left its unit out of the study. */
function isLeftOut({ arm, reason }) {
  return arm === "not_enrolled" && reason === "DEFAULT";
}

/** Return a unit as text, as it is drawn and sent; an integer stands for its digits. */
function normalizeUnit(unit) {
  const text = typeof unit === "bigint" || Number.isSafeInteger(unit) ? String(unit) : unit;
  checkUnit(text);
  return text;
}
