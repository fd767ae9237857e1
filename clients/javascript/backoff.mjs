// How long to wait after a failure: longer each time, never long, and never all clients at once.

const FIRST = 2;
/** Seconds: nobody waits longer, so that a service that is back is found within half a minute. */
const CAP = 30;
/** Seconds between two requests of one kind after a failure, whatever happens. */
export const LEAST = 1;

/** Counts failures in a row; each waits between half and the whole of twice the one before. */
export class Backoff {
  #random;

  constructor(random) {
    this.#random = random;
    this.failures = 0;
  }

  /** Seconds to wait now; what the service asks for in Retry-After is granted up to the cap. */
  failed(retryAfter) {
    const longest = Math.min(CAP, FIRST * 2 ** Math.min(this.failures, 10));
    this.failures += 1;
    const wait = (longest * (1 + this.#random())) / 2;
    return /^\d+$/.test(retryAfter ?? "") ? Math.max(wait, Math.min(Number(retryAfter), CAP)) : wait;
  }

  succeeded() {
    this.failures = 0;
  }

  /** A factor between 0.8 and 1, for whatever many clients would else do at the same moment. */
  jitter() {
    return 0.8 + 0.2 * this.#random();
  }
}

/** The real clock, in seconds; `sleep` also ends, without complaint, when the signal says so. */
export const CLOCK = {
  now: () => performance.now() / 1000,
  sleep: (seconds, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const wake = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", wake);
        resolve();
      };
      const timer = setTimeout(wake, seconds * 1000);
      signal?.addEventListener("abort", wake);
    }),
};
