// Published policy: draws the candidate of a unit, by the same rule in every language.

import { findSegment, isInAudience, readCluster } from "./enrolment.mjs";
import { InputError, quoteValue } from "./errors.mjs";
import { BUCKET_TOTAL, LONE_SURROGATE, readPolicy } from "./policy_document.mjs";
import { sha256 } from "./sha256.mjs";

const MAX_UNIT_CHARACTERS = 256;
const encoder = new TextEncoder();

/** Immutable policy: the candidate of each unit, and its probability. */
export class PublishedPolicy {
  #start;
  #sections;
  /** Sections of each segment. */
  #sectionsBySegment;
  #named;
  #slices;

  /** Read and check a document; a given checksum must be that of its text. */
  static fromText(text, checksum) {
    return new PublishedPolicy(text, checksum);
  }

  constructor(text, checksum) {
    const { candidates, baseline, cellsBySegment, ...document } = readPolicy(text, checksum);
    Object.assign(this, document);
    this.#named = new Map();
    for (const [candidate, { name, values }] of candidates) {
      const { version } = this;
      const bucket = { arm: "none", candidate, name, values, width: 0, propensity: 0, version, segment: null };
      this.#named.set(name, Object.freeze(bucket));
    }
    this.baseline = this.#named.get(candidates.get(baseline).name);
    this.notEnrolled = Object.freeze({ ...this.baseline, arm: "not_enrolled" });
    this.isPartial = this.enrolment.length + this.audience.length > 0 || this.cluster !== null;
    this.#slices = this.enrolment.map(({ salt, from, until }) => ({ start: encoder.encode(`${salt}\0`), from, until }));
    this.#start = encoder.encode(`${this.salt}\0`);
    const divide = (cells) => withEnds(this.mode === "sticky" ? groupByArm(cells, this.salt) : cells);
    this.#sections = divide(this.cells);
    this.#sectionsBySegment = new Map([...cellsBySegment].map(([name, cells]) => [name, divide(cells)]));
    Object.freeze(this);
  }

  /**
   * Return the bucket of a unit, a string of 1 to 256 characters; throw InputError for any other value.
   *
   * A unit that does not take part, or whose attributes do not meet the audience, gets `notEnrolled`. With segments,
   * the attributes decide on the unit's segment, and it is drawn from the buckets of this segment. With clusters, the
   * cluster of the unit is drawn; a unit without one gets `notEnrolled`.
   */
  draw(unit, attributes) {
    checkUnit(unit);
    const drawn = this.cluster === null ? unit : this.findCluster(attributes);
    if (drawn === null) return this.notEnrolled;
    const bytes = encoder.encode(drawn);
    if (this.isPartial && !(isInAudience(this.audience, attributes) && this.#isEnrolled(bytes))) return this.notEnrolled;
    const place = hashPlace(this.#start, bytes);
    const { ends, entries } =
      this.segments === null ? this.#sections : this.#sectionsBySegment.get(findSegment(this.segments, attributes));
    let low = 0;
    let high = ends.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (place < ends[middle]) high = middle;
      else low = middle + 1;
    }
    const entry = entries[low];
    return Array.isArray(entry) ? findWinner(entry, bytes) : entry;
  }

  /** Return the cluster of a unit; null if the policy has no clusters, or the attributes name none. */
  findCluster(attributes) {
    return this.cluster === null ? null : readCluster(this.cluster, attributes);
  }

  /** Return whether a unit is in every slice of the enrolment. */
  #isEnrolled(unit) {
    return this.#slices.every(({ start, from, until }) => {
      const place = hashPlace(start, unit);
      return from <= place && place < until;
    });
  }

  /** Return a candidate by its name, as an override serves it; undefined if there is none. */
  named(name) {
    return this.#named.get(name);
  }
}

/** Throw InputError for a value that is not a unit. */
export function checkUnit(unit) {
  if (typeof unit !== "string") throw new InputError(`a unit must be a string, got ${quoteValue(unit)}`);
  if (unit.length === 0) throw new InputError("a unit must have at least one character, got ''");
  // A character above U+FFFF has two code units in a string, and counts once.
  const isLong = unit.length > MAX_UNIT_CHARACTERS;
  if (isLong && (unit.length > 2 * MAX_UNIT_CHARACTERS || [...unit].length > MAX_UNIT_CHARACTERS)) {
    throw new InputError(
      `a unit must have at most ${MAX_UNIT_CHARACTERS} characters, got ${quoteValue(unit.slice(0, 20))}...; ` +
        "use a hash of it instead",
    );
  }
  if (LONE_SURROGATE.test(unit)) {
    throw new InputError("the unit holds half a surrogate pair; decode it as UTF-8 first");
  }
}

/** Return the bucket that wins a unit; each candidate's chance is its part of the arm's width. */
function findWinner(stickyCandidates, unit) {
  let best = Infinity;
  let winner = stickyCandidates[0];
  for (const candidate of stickyCandidates) {
    const score = -Math.log((hashPlace(candidate.start, unit) + 0.5) / BUCKET_TOTAL) / candidate.bucket.width;
    if (score < best) {
      best = score;
      winner = candidate;
    }
  }
  return winner.bucket;
}

/** Return the top 53 bits of a hash: all 32 of the first word, and 21 of the second. */
function hashPlace(start, unit) {
  const words = sha256(start, unit);
  return words[0] * 2 ** 21 + (words[1] >>> 11);
}

/** Return each arm as its competing candidates, or as its bucket if it has only one. */
function groupByArm(buckets, salt) {
  const arms = new Map();
  for (const { arm } of buckets) arms.set(arm, []);
  for (const bucket of buckets) {
    arms.get(bucket.arm).push({ start: encoder.encode(`${salt}\0${bucket.name}\0`), bucket });
  }
  return [...arms.values()].map((candidates) => (candidates.length === 1 ? candidates[0].bucket : candidates));
}

/** Return entries with the end of each. Sums of widths are integers up to 2^53, so they are exact. */
function withEnds(entries) {
  let end = 0;
  const ends = entries.map((entry) => {
    end += Array.isArray(entry) ? entry.reduce((sum, { bucket }) => sum + bucket.width, 0) : entry.width;
    return end;
  });
  return { ends, entries };
}
