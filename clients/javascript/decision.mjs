// Decision for one unit: its candidate, and the handle that tracks its metric events.

import { quoteValue } from "./errors.mjs";

/** Largest number that the service takes. */
const MAX_NUMBER = 1e15;
const MAX_NAME_CHARACTERS = 200;

/** Candidate of one unit: its values, the reason, and the probability with which it was drawn. */
export class Decision {
  #onMetric;

  constructor(onMetric, unit, bucket, version, reason, cluster = null) {
    this.#onMetric = onMetric;
    this.unit = unit;
    this.values = bucket.values;
    this.name = bucket.name;
    this.candidate = bucket.candidate;
    this.version = version;
    this.propensity = bucket.propensity;
    this.arm = bucket.arm;
    this.segment = bucket.segment;
    this.reason = reason;
    this.cluster = cluster;
    Object.freeze(this);
  }

  /** Send a metric event of the unit under this decision; never throws. */
  track(event, fields) {
    this.#onMetric(this.unit, this, event, fields);
  }
}

/** Return an event's fields as they are sent; throw TypeError if the service would reject them. */
export function checkFields(event, fields) {
  if (typeof event !== "string" || event === "" || event.length > MAX_NAME_CHARACTERS) {
    throw new TypeError(
      `an event's name must be a string of 1 to ${MAX_NAME_CHARACTERS} characters, got ${quoteValue(event)}`,
    );
  }
  const defined = Object.entries(fields ?? {}).filter(([, value]) => value !== undefined);
  for (const [field, value] of defined) {
    const isValid =
      typeof value === "boolean" ||
      typeof value === "string" ||
      (typeof value === "number" && Math.abs(value) <= MAX_NUMBER);
    if (!isValid) throw new TypeError(`field '${field}' of '${event}' must be a finite number, a string or a boolean`);
  }
  return Object.fromEntries(defined);
}
