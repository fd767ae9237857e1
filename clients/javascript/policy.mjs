// A published policy: read with everything checked, and drawn from by the same rule as in every other language.

import { hexadecimal, sha256 } from "./sha256.mjs";

/** How long the line is on which units fall. */
const WHOLE = 2 ** 53;
const LONGEST = 256;
const FORMAT = 1;
const ARMS = ["control", "learner", "outside", "single", "blend", "held"];
const HALF_A_PAIR = /\p{Surrogate}/u;
const OWN_CHECKSUM = /,"sha256":"([0-9a-f]{64})"\}$/;
const encoder = new TextEncoder();

/** What was given does not fit; the message says what was needed. */
export class BadInput extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** A published policy that cannot be read, or does not add up. */
export class BadPolicy extends BadInput {}

/** An immutable policy: which candidate each unit gets, and with what probability. */
export class Policy {
  #start;
  #entries;
  #named = new Map();

  /** Read a document; `checksum`, where given, must be that of its text. */
  static fromText(text, checksum) {
    return new Policy(text, checksum);
  }

  constructor(text, checksum) {
    if (typeof text !== "string") throw new BadPolicy(`a policy is read from a string, got ${shown(text)}`);
    if (HALF_A_PAIR.test(text)) throw new BadPolicy("the policy holds half a surrogate pair, which no text may");
    this.text = text;
    this.checksum = hexadecimal(sha256(encoder.encode(text)));
    if (checksum !== undefined && checksum !== null && checksum !== this.checksum) {
      throw new BadPolicy(
        `the policy's checksum should be ${shown(checksum)} and is ${this.checksum}: it was changed or cut short`,
      );
    }
    const own = OWN_CHECKSUM.exec(text);
    if (own !== null && own[1] !== hexadecimal(sha256(encoder.encode(`${text.slice(0, own.index)}}`)))) {
      throw new BadPolicy("the policy is not the text that its sha256 was made of: it was changed on its way");
    }
    const fields = object(parse(text), "the policy");
    if (own === null && Object.hasOwn(fields, "sha256")) {
      throw new BadPolicy("sha256 must be the policy's last field, as published; pass the document on unchanged");
    }
    if (get(fields, "format") !== FORMAT) {
      throw new BadPolicy(`format is ${shown(fields.format)} and only ${FORMAT} can be read here; upgrade pasto`);
    }
    this.study = word(fields, "study");
    this.version = whole(fields, "version");
    this.round = whole(fields, "round");
    this.state = word(fields, "state");
    this.mode = word(fields, "mode");
    if (this.mode !== "shuffled" && this.mode !== "sticky") {
      throw new BadPolicy(`mode is ${shown(this.mode)}; it can be shuffled or sticky`);
    }
    this.salt = word(fields, "salt");
    this.#start = encoder.encode(`${this.salt}\0`);
    this.validFrom = seconds(fields, "valid_from");
    this.expiresAfter = seconds(fields, "expires_after");
    if (this.expiresAfter <= 0) throw new BadPolicy("expires_after must be a positive number of seconds");
    const candidates = readCandidates(array(fields, "candidates"));
    for (const [index, { name, values }] of candidates) {
      const cell = { arm: "none", candidate: index, name, values, width: 0, propensity: 0, version: this.version };
      this.#named.set(name, Object.freeze(cell));
    }
    const baseline = whole(fields, "baseline");
    if (!candidates.has(baseline)) throw new BadPolicy(`baseline is ${baseline}, which is not among the candidates`);
    this.baseline = this.#named.get(candidates.get(baseline).name);
    this.cells = Object.freeze(readCells(array(fields, "cells"), candidates, this.version));
    this.#entries = withCuts(this.mode === "sticky" ? arms(this.cells, this.salt) : this.cells);
    Object.freeze(this);
  }

  /** The unit's cell; throws BadInput for what is no unit: a string of 1 to 256 characters. */
  draw(unit) {
    checkUnit(unit);
    const bytes = encoder.encode(unit);
    const own = place(this.#start, bytes);
    const { cuts, entries } = this.#entries;
    let low = 0;
    let high = cuts.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (own < cuts[middle]) high = middle;
      else low = middle + 1;
    }
    const entry = entries[low];
    return Array.isArray(entry) ? winner(entry, bytes) : entry;
  }

  /** A candidate of the document by its name, as an override would serve it; undefined where there is none. */
  named(name) {
    return this.#named.get(name);
  }
}

/** Whether a document carries its own checksum, which reading it verifies. */
export function hasChecksum(text) {
  return OWN_CHECKSUM.test(text);
}

/** Who wins a unit within an arm: each candidate's chance is its width's part of the arm's. */
function winner(runners, unit) {
  let best = Infinity;
  let first = runners[0];
  for (const runner of runners) {
    const score = -Math.log((place(runner.start, unit) + 0.5) / WHOLE) / runner.cell.width;
    if (score < best) {
      best = score;
      first = runner;
    }
  }
  return first.cell;
}

/** The top 53 bits of a hash: all of the first word, and 21 bits of the second. */
function place(start, unit) {
  const words = sha256(start, unit);
  return words[0] * 2 ** 21 + (words[1] >>> 11);
}

/** Throw BadInput for what is no unit. */
export function checkUnit(unit) {
  if (typeof unit !== "string") throw new BadInput(`a unit must be a string, got ${shown(unit)}`);
  if (unit.length === 0) throw new BadInput("a unit must have at least one character, got ''");
  // A character beyond the first 2^16 takes two places in a string, and counts once.
  if (unit.length > LONGEST && (unit.length > 2 * LONGEST || [...unit].length > LONGEST)) {
    throw new BadInput(`a unit may have ${LONGEST} characters, got more; use a hash of it instead`);
  }
  if (HALF_A_PAIR.test(unit)) throw new BadInput("the unit holds half a surrogate pair, which no text may");
}

/** Each arm as the runners for its units, or as its cell where it has but one. */
function arms(cells, salt) {
  const found = new Map();
  for (const { arm } of cells) found.set(arm, []);
  for (const cell of cells) found.get(cell.arm).push({ start: encoder.encode(`${salt}\0${cell.name}\0`), cell });
  return [...found.values()].map((own) => (own.length === 1 ? own[0].cell : own));
}

/** What a place leads to, with where each ends. Sums of widths are whole numbers up to 2^53, so they are exact. */
function withCuts(entries) {
  let until = 0;
  const cuts = entries.map((entry) => {
    until += Array.isArray(entry) ? entry.reduce((sum, { cell }) => sum + cell.width, 0) : entry.width;
    return until;
  });
  return { cuts, entries };
}

function readCandidates(listed) {
  const candidates = new Map();
  const names = new Set();
  listed.forEach((item, position) => {
    const where = `candidates[${position}]`;
    const fields = object(item, where);
    const index = whole(fields, "index", where);
    const name = word(fields, "name", where);
    if (candidates.has(index) || names.has(name)) throw new BadPolicy(`${where} repeats a candidate's index or name`);
    const values = object(get(fields, "values", where), `${where}.values`);
    for (const [parameter, value] of Object.entries(values)) checkValue(parameter, value, `${where}.values`);
    candidates.set(index, { name, values: Object.freeze(values) });
    names.add(name);
  });
  return candidates;
}

function checkValue(parameter, value, where) {
  const sound =
    typeof value === "boolean" || Number.isFinite(value) || (typeof value === "string" && !HALF_A_PAIR.test(value));
  if (!sound || HALF_A_PAIR.test(parameter)) {
    throw new BadPolicy(`${where}[${shown(parameter)}] must be a finite number, a text or a bool, got ${shown(value)}`);
  }
}

function readCells(listed, candidates, version) {
  const seen = new Map();
  let last = 0;
  let current = null;
  const cells = listed.map((item, position) => {
    const where = `cells[${position}]`;
    const fields = object(item, where);
    const arm = word(fields, "arm", where);
    const candidate = whole(fields, "candidate", where);
    const until = whole(fields, "until", where);
    if (!ARMS.includes(arm)) throw new BadPolicy(`${where}.arm is ${shown(arm)}; the arms are ${ARMS.join(", ")}`);
    if (!candidates.has(candidate)) throw new BadPolicy(`${where}.candidate is not among the candidates`);
    if (arm !== current && seen.has(arm)) throw new BadPolicy(`${where}: the cells of one arm must be neighbours`);
    if (seen.get(arm)?.has(candidate)) throw new BadPolicy(`${where} repeats a candidate in its arm`);
    if (until <= last) throw new BadPolicy(`${where}.until is not above the cut before it; cuts must increase`);
    if (arm !== current) seen.set(arm, new Set());
    seen.get(arm).add(candidate);
    const width = until - last;
    const { name, values } = candidates.get(candidate);
    current = arm;
    last = until;
    return Object.freeze({ arm, candidate, name, values, width, propensity: width / WHOLE, version });
  });
  if (last !== WHOLE) throw new BadPolicy(`the last cell ends at ${last}; the cells must cover the line up to 2^53`);
  return cells;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new BadPolicy(`the policy is no JSON: ${error.message}`);
  }
}

function get(fields, field, where = "the policy") {
  if (!Object.hasOwn(fields, field)) throw new BadPolicy(`${field} is missing from ${where}`);
  return fields[field];
}

function object(value, where) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new BadPolicy(`${where} must be a JSON object, got ${shown(value)}`);
  }
  return value;
}

function array(fields, field) {
  const value = get(fields, field);
  if (!Array.isArray(value)) throw new BadPolicy(`${field} must be a JSON array, got ${shown(value)}`);
  return value;
}

function whole(fields, field, where) {
  const value = get(fields, field, where);
  if (!Number.isInteger(value) || value < 0 || value > WHOLE) {
    throw new BadPolicy(`${field} in ${where ?? "the policy"} must be a whole number to 2^53, got ${shown(value)}`);
  }
  return value;
}

function seconds(fields, field) {
  const value = get(fields, field);
  if (typeof value !== "number" || !(Math.abs(value) <= 1e15)) {
    throw new BadPolicy(`${field} must be a number of seconds, got ${shown(value)}`);
  }
  return value;
}

function word(fields, field, where) {
  const value = get(fields, field, where);
  if (typeof value !== "string" || value === "" || value.includes("\0") || HALF_A_PAIR.test(value)) {
    throw new BadPolicy(`${field} in ${where ?? "the policy"} must be a text without NUL, got ${shown(value)}`);
  }
  return value;
}

/** A value as messages show it. */
export function shown(value) {
  try {
    return (JSON.stringify(value) ?? String(value)).slice(0, 60);
  } catch {
    return typeof value;
  }
}
