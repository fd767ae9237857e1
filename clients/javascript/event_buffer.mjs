// Buffer of events that wait to be sent, with exact counts of every exposure.

import { EventQueue } from "./event_queue.mjs";
import { formatHex } from "./sha256.mjs";

/** Policies whose exposures are counted; beyond that, the oldest complete tally is removed. */
const MAX_POLICY_TALLIES = 64;

/** Bounded buffer of numbered events: if it is full, the oldest event is dropped and counted. */
export class EventBuffer {
  #capacity;
  #onDrop;
  #waiting = new EventQueue();
  #inFlight = [];
  #tallies = new Map();
  #sequence = 0;
  #tallySequence = 0;

  /** `onDrop` receives the decision of each dropped exposure, so that the unit's next one is logged again. */
  constructor(capacity, onDrop) {
    this.#capacity = capacity;
    this.#onDrop = onDrop;
    this.source = newSource();
    this.droppedMetrics = 0;
  }

  /** Number of events that are not settled. */
  get pending() {
    return this.#waiting.length + this.#inFlight.length;
  }

  /** Number of events that are not in a request. */
  get waiting() {
    return this.#waiting.length;
  }

  /** True if every event is settled and the service has acknowledged all counts. */
  get isSettled() {
    return this.pending === 0 && [...this.#tallies.values()].every((tally) => tally.reportedChanges === tally.changes);
  }

  /** Add and count the exposure of a new decision. */
  addExposure(decision) {
    const candidate = this.#candidateTally(decision);
    candidate.assigned += 1;
    this.#tallies.get(decision.version).changes += 1;
    this.#add({ decision, unit: decision.unit });
  }

  /** Add a metric event; without a decision, the service looks up the unit's exposure. */
  addMetric(unit, decision, name, fields) {
    this.#add({ decision, unit, name, fields });
  }

  /** Return the next events to send; a repeat of an event has the same id. */
  take(limit) {
    this.#inFlight = this.#waiting.take(limit);
    return this.#inFlight.map((event) => this.#serialize(event));
  }

  /** Put the events that were taken back to the front of the buffer. */
  returnEvents() {
    this.#waiting.putBack(this.#inFlight);
    this.#inFlight = [];
  }

  /** Record that the service acknowledged the taken events, except those that it rejected. */
  settle(rejectedPlaces) {
    this.#inFlight.forEach((event, place) => {
      if (rejectedPlaces.has(place)) this.#drop(event);
      else if (event.name === undefined) this.#candidateTally(event.decision).logged += 1;
    });
    this.#inFlight = [];
  }

  /** Return the tallies that changed since the service last acknowledged them, as they are sent. */
  changedTallies() {
    return [...this.#tallies]
      .filter(([, tally]) => tally.reportedChanges !== tally.changes)
      .map(([version, tally]) => {
        this.#tallySequence += 1;
        const candidates = [...tally.candidates];
        const event = {
          type: "exposure_counts",
          id: `${this.source}-counts-${this.#tallySequence}`,
          source: this.source,
          sequence: this.#tallySequence,
          version,
          assigned: Object.fromEntries(candidates.map(([name, { assigned }]) => [name, assigned])),
          dropped: Object.fromEntries(
            candidates.filter(([, { dropped }]) => dropped > 0).map(([name, { dropped }]) => [name, dropped]),
          ),
        };
        return { version, changes: tally.changes, event };
      });
  }

  /** Record that the service has these tallies. */
  markReported(reportedTallies) {
    for (const { version, changes } of reportedTallies) {
      const tally = this.#tallies.get(version);
      if (tally !== undefined) tally.reportedChanges = changes;
    }
  }

  /** Return exposures by version and candidate: assigned == logged + dropped + pending. */
  countByCandidate() {
    const count = ([name, { assigned, logged, dropped }]) => {
      return [name, { assigned, logged, dropped, pending: assigned - logged - dropped }];
    };
    return Object.fromEntries(
      [...this.#tallies].map(([version, { candidates }]) => [version, Object.fromEntries([...candidates].map(count))]),
    );
  }

  #add(event) {
    this.#sequence += 1;
    event.sequence = this.#sequence;
    if (this.#waiting.length >= this.#capacity) {
      const [oldest] = this.#waiting.take(1);
      this.#drop(oldest);
      if (oldest.name === undefined) this.#onDrop(oldest.decision);
    }
    this.#waiting.push(event);
  }

  /** Count an event that is lost. */
  #drop({ decision, name }) {
    if (name !== undefined) {
      this.droppedMetrics += 1;
      return;
    }
    this.#candidateTally(decision).dropped += 1;
    this.#tallies.get(decision.version).changes += 1;
  }

  #candidateTally({ version, name }) {
    if (!this.#tallies.has(version)) this.#openTally(version);
    const { candidates } = this.#tallies.get(version);
    if (!candidates.has(name)) candidates.set(name, { assigned: 0, logged: 0, dropped: 0 });
    return candidates.get(name);
  }

  #openTally(version) {
    if (this.#tallies.size >= MAX_POLICY_TALLIES) {
      const oldest = [...this.#tallies].find(([, tally]) => isComplete(tally));
      if (oldest !== undefined) this.#tallies.delete(oldest[0]);
    }
    this.#tallies.set(version, { candidates: new Map(), changes: 0, reportedChanges: 0 });
  }

  #serialize({ decision, unit, name, fields, sequence }) {
    const type = name === undefined ? "exposure" : "metric";
    const event = { type, id: `${this.source}-${sequence}`, unit, source: this.source, sequence };
    if (name !== undefined) {
      event.name = name;
      if (Object.keys(fields).length > 0) event.fields = fields;
      if (decision === undefined) return event;
      if (decision.reason !== "SPLIT") return { ...event, version: 0 }; // Stored, and counted for no candidate.
    }
    event.version = decision.version;
    event.candidate = decision.name;
    if (name === undefined && decision.cluster !== null) event.cluster = decision.cluster;
    if (decision.reason === "OVERRIDE") event.override = true;
    else if (decision.reason !== "SPLIT") event.fallback = true;
    else if (decision.segment !== null) event.segment = decision.segment;
    return event;
  }
}

/** Return a unique name for a client: 128 random bits. It is not a secret, so Math.random may replace Web Crypto. */
function newSource() {
  const words = new Uint32Array(4);
  if (globalThis.crypto?.getRandomValues) globalThis.crypto.getRandomValues(words);
  else words.forEach((_, place) => (words[place] = Math.random() * 2 ** 32));
  return formatHex(words);
}

/** Return whether nothing is pending and the service has acknowledged all counts. */
function isComplete({ candidates, changes, reportedChanges }) {
  return (
    reportedChanges === changes &&
    [...candidates.values()].every(({ assigned, logged, dropped }) => assigned === logged + dropped)
  );
}
