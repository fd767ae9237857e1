// Errors that the package throws, and the form in which their messages quote a value.

/** Argument that is not valid; the message names the value that is needed. */
export class InputError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** Policy document that cannot be read or whose checks fail. */
export class PolicyError extends InputError {}

/** Return a value as error messages quote it. */
export function quoteValue(value) {
  try {
    return (JSON.stringify(value) ?? String(value)).slice(0, 60);
  } catch {
    return typeof value;
  }
}
