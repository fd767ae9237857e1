// Public names of the package; every other module may change.

export { Client } from "./client.mjs";
export { InputError, PolicyError } from "./errors.mjs";
export { PublishedPolicy } from "./policy.mjs";
