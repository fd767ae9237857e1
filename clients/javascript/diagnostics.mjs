// Diagnostics of a client: problems, counted and reported, and never thrown to the caller.

/** Most different reasons that are counted one by one. */
const MAX_REASONS = 100;
/** Reason of a rejected event without one: the service explains the first hundred of a batch. */
const UNLISTED = "reason not listed by the service";

/** Return the message of an error with that of its cause: `fetch` explains a failure only there. */
export function describeError(error) {
  const cause = error?.cause?.message;
  return `${error?.message ?? error}${cause ? `: ${cause}` : ""}`;
}

/** Problems that must not reach the caller, and that an operator must see. */
export class ErrorLog {
  #onError;

  /** `onError` receives every message; its own exceptions are ignored. */
  constructor(onError) {
    this.#onError = onError;
    this.errors = 0;
    this.lastError = null;
    /** Events that the service or the client rejected, by reason. */
    this.refused = new Map();
  }

  /** Count a problem and store it as the last one. */
  note(message) {
    this.errors += 1;
    this.lastError = message;
    this.#report(message);
  }

  /** Count a rejected event by its reason. The number of reasons is limited, because a reason may name an id. */
  refuse(given) {
    const reason = given || UNLISTED;
    const counted = this.refused.has(reason) || this.refused.size < MAX_REASONS ? reason : "other reasons";
    this.refused.set(counted, (this.refused.get(counted) ?? 0) + 1);
    this.#report(reason);
  }

  #report(message) {
    try {
      this.#onError?.(message);
    } catch {
      // A decision must not fail because a log does.
    }
  }
}
