// What went wrong, counted and told, and never thrown at the caller.

const REASONS = 100;
/** The reason of an event that the service refused without one: it explains the first hundred of a batch. */
const UNLISTED = "reason not listed by the service";

/** An error in words; what `fetch` throws says only in its cause what happened. */
export function explained(error) {
  const cause = error?.cause?.message;
  return `${error?.message ?? error}${cause ? `: ${cause}` : ""}`;
}

export class Journal {
  #listener;

  /** `listener` hears every message; what it throws is its own affair. */
  constructor(listener) {
    this.#listener = listener;
    this.errors = 0;
    this.lastError = null;
    this.refused = new Map();
  }

  /** Something failed, and will be tried again or was done without. */
  note(message) {
    this.errors += 1;
    this.lastError = message;
    this.#tell(message);
  }

  /** An event will never arrive. Reasons may name what differs each time, and must not pile up for months. */
  refuse(given) {
    const reason = given || UNLISTED;
    const known = this.refused.has(reason) || this.refused.size < REASONS ? reason : "others";
    this.refused.set(known, (this.refused.get(known) ?? 0) + 1);
    this.#tell(reason);
  }

  #tell(message) {
    try {
      this.#listener?.(message);
    } catch {
      // A decision does not fail because somebody's log does.
    }
  }
}
