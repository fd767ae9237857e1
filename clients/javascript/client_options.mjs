// Options of a client, checked when it is made: the only place where a client throws.

import { quoteValue } from "./errors.mjs";

/** Former names of options, with the present ones. */
const RENAMED_OPTIONS = {
  refresh: "pollInterval",
  flush: "flushInterval",
  buffer: "maxBufferedEvents",
  remember: "decisionCacheSize",
  key: "apiKey",
};

/** Clock of the system, in seconds; `sleep` also resolves when the signal aborts. */
export const SYSTEM_CLOCK = {
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

/** Throw TypeError for an option that does not exist. */
export function checkUnknown(options) {
  for (const name of Object.keys(options)) {
    const hint = RENAMED_OPTIONS[name] ? `; it is now called ${RENAMED_OPTIONS[name]}` : "";
    throw new TypeError(`there is no option ${name}${hint}`);
  }
}

/** Return the address of a study on the service; throw TypeError if it cannot be one. */
export function studyAddress(url, study) {
  if (typeof study !== "string" || study === "") {
    throw new TypeError(`study must be the name of a study, got ${quoteValue(study)}`);
  }
  if (!/^https?:$/.test(new URL(url).protocol)) {
    throw new TypeError(`url must be an address such as http://127.0.0.1:8300, got ${quoteValue(url)}`);
  }
  return `${String(url).replace(/\/+$/, "")}/v1/studies/${encodeURIComponent(study)}`;
}

/** Return a number of at least `minimum`; throw TypeError if it is not one. */
export function checkAmount(name, value, minimum) {
  if (typeof value === "number" && value >= minimum && value < Infinity) return value;
  throw new TypeError(`${name} must be a number of at least ${minimum}, got ${quoteValue(value)}`);
}
