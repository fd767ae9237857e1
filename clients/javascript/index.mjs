// What a caller imports; every other file is ours to change.

export { Client } from "./client.mjs";
export { BadInput, BadPolicy, Policy } from "./policy.mjs";
