// Events on their way to the service, and the books that account for every exposure.

import { Queue } from "./queue.mjs";
import { hexadecimal } from "./sha256.mjs";

const LARGEST = 1e15;
/** Policies whose books are kept; closed books beyond that are put away, the oldest first. */
const VERSIONS = 64;

/** A bounded buffer of numbered events: when it is full the oldest goes, and is counted. */
export class Outbox {
  #capacity;
  #lost;
  #waiting = new Queue();
  #flying = [];
  #books = new Map();
  #sequence = 0;
  #tallies = 0;

  /** `lost` is told of each exposure that is pushed out, so that its unit's next one is logged again. */
  constructor(capacity, lost) {
    this.#capacity = capacity;
    this.#lost = lost;
    this.source = newSource();
    this.droppedMetrics = 0;
  }

  /** How many events are not yet answered for. */
  get pending() {
    return this.#waiting.length + this.#flying.length;
  }

  get waiting() {
    return this.#waiting.length;
  }

  /** Take an exposure and count it. */
  expose(assignment) {
    const line = this.#line(assignment);
    line.assigned += 1;
    this.#books.get(assignment.version).changes += 1;
    this.#add({ assignment, unit: assignment.unit });
  }

  /** Take a metric event; `assignment` is undefined where the service is to find out whose it is. */
  measure(unit, assignment, name, fields) {
    this.#add({ assignment, unit, name, fields });
  }

  /** The next events to send, as they are sent; the same event has the same id, however often. */
  take(limit) {
    this.#flying = this.#waiting.take(limit);
    return this.#flying.map((event) => this.#wire(event));
  }

  /** Let what was taken wait again, before all others. */
  putBack() {
    this.#waiting.putBack(this.#flying);
    this.#flying = [];
  }

  /** The service has answered for what was taken: kept, but for those at these places. */
  settle(refused) {
    this.#flying.forEach((event, place) => {
      if (refused.has(place)) this.#drop(event);
      else if (event.name === undefined) this.#line(event.assignment).logged += 1;
    });
    this.#flying = [];
  }

  /** The books that changed since the service was last told: cumulative counts by version and candidate. */
  tallies() {
    return [...this.#books]
      .filter(([, book]) => book.told !== book.changes)
      .map(([version, book]) => {
        this.#tallies += 1;
        const dropped = [...book.lines].filter(([, line]) => line.dropped > 0);
        const wire = {
          type: "exposure_counts",
          id: `${this.source}-counts-${this.#tallies}`,
          source: this.source,
          sequence: this.#tallies,
          version,
          assigned: Object.fromEntries([...book.lines].map(([name, line]) => [name, line.assigned])),
          dropped: Object.fromEntries(dropped.map(([name, line]) => [name, line.dropped])),
        };
        return { version, changes: book.changes, wire };
      });
  }

  /** The service has these tallies. */
  told(tallies) {
    for (const { version, changes } of tallies) {
      const book = this.#books.get(version);
      if (book !== undefined) book.told = changes;
    }
  }

  /** Whether every event is answered for and every book told. */
  get settled() {
    return this.pending === 0 && [...this.#books.values()].every((book) => book.told === book.changes);
  }

  /** By version and candidate: assigned == logged + dropped + pending. */
  accounts() {
    const shown = ([name, { assigned, logged, dropped }]) => {
      return [name, { assigned, logged, dropped, pending: assigned - logged - dropped }];
    };
    return Object.fromEntries(
      [...this.#books].map(([version, { lines }]) => [version, Object.fromEntries([...lines].map(shown))]),
    );
  }

  #add(event) {
    this.#sequence += 1;
    event.sequence = this.#sequence;
    if (this.#waiting.length >= this.#capacity) {
      const [oldest] = this.#waiting.take(1);
      this.#drop(oldest);
      if (oldest.name === undefined) this.#lost(oldest.assignment);
    }
    this.#waiting.push(event);
  }

  #drop({ assignment, name }) {
    if (name !== undefined) {
      this.droppedMetrics += 1;
      return;
    }
    this.#line(assignment).dropped += 1;
    this.#books.get(assignment.version).changes += 1;
  }

  #line({ version, name }) {
    if (!this.#books.has(version)) this.#open(version);
    const { lines } = this.#books.get(version);
    if (!lines.has(name)) lines.set(name, { assigned: 0, logged: 0, dropped: 0 });
    return lines.get(name);
  }

  #open(version) {
    if (this.#books.size >= VERSIONS) {
      const closed = ([, book]) => book.told === book.changes && [...book.lines.values()].every(even);
      const oldest = [...this.#books].find(closed);
      if (oldest !== undefined) this.#books.delete(oldest[0]);
    }
    this.#books.set(version, { lines: new Map(), changes: 0, told: 0 });
  }

  #wire({ assignment, unit, name, fields, sequence }) {
    const type = name === undefined ? "exposure" : "metric";
    const sent = { type, id: `${this.source}-${sequence}`, unit, source: this.source, sequence };
    if (name !== undefined) {
      sent.name = name;
      if (Object.keys(fields).length > 0) sent.fields = fields;
      if (assignment === undefined) return sent;
      if (assignment.reason !== "SPLIT") return { ...sent, version: 0 }; // Nobody's: kept, and credited to none.
    }
    sent.version = assignment.version;
    sent.candidate = assignment.name;
    if (assignment.reason === "OVERRIDE") sent.override = true;
    else if (assignment.reason !== "SPLIT") sent.fallback = true;
    return sent;
  }
}

/** A name that no other client has: 128 random bits. Where there is no Web Crypto, chance serves; it is no secret. */
function newSource() {
  const words = new Uint32Array(4);
  if (globalThis.crypto?.getRandomValues) globalThis.crypto.getRandomValues(words);
  else words.forEach((_, place) => (words[place] = Math.random() * 2 ** 32));
  return hexadecimal(words);
}

/** Whether nothing of a line is pending. */
function even({ assigned, logged, dropped }) {
  return assigned === logged + dropped;
}

/** An event's fields as they are sent; throws for what the service would refuse. */
export function checkEvent(name, fields) {
  if (typeof name !== "string" || name === "" || name.length > 200) {
    throw new TypeError("an event's name is a text of up to 200 characters");
  }
  const checked = Object.entries(fields ?? {}).filter(([, value]) => value !== undefined);
  for (const [field, value] of checked) {
    const sound =
      typeof value === "boolean" ||
      typeof value === "string" ||
      (typeof value === "number" && Math.abs(value) <= LARGEST);
    if (!sound) throw new TypeError(`field '${field}' of '${name}' must be a finite number, a text or a bool`);
  }
  return Object.fromEntries(checked);
}
