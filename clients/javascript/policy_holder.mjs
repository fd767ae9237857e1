// Holder of the policy that a client decides by, and cache of its decisions.

import { PolicyError } from "./errors.mjs";
import { signExposure } from "./exposure_signature.mjs";
import { PublishedPolicy } from "./policy.mjs";

/** Time by which a policy with a lower version must be newer to replace the held one: above the skew of clocks. */
const MIN_RESTART_SECONDS = 60;

/** Holder of the last good policy: only a newer one replaces it, and it becomes stale with time. */
export class PolicyHolder {
  #study;
  #now;
  #contact = -Infinity;
  #hasEnded = false;
  #resolveArrival;
  #arrival;
  #signingKey = null;

  constructor(study, now) {
    this.#study = study;
    this.#now = now;
    this.policy = null;
    this.#arrival = new Promise((resolve) => {
      this.#resolveArrival = resolve;
    });
  }

  /** True if there is a policy that has not expired. */
  get isFresh() {
    return this.policy !== null && !this.#hasEnded && this.age < this.policy.expiresAfter;
  }

  /** Seconds since the service last confirmed the policy; null if none is held. */
  get age() {
    return this.policy === null ? null : this.#now() - this.#contact;
  }

  /** Return a promise that resolves when there is a first policy. */
  waitForPolicy() {
    return this.#arrival;
  }

  /**
   * Take a policy; throw PolicyError if it is damaged or older than the held one.
   *
   * A lower version is a late copy, or a study that was created again under the same name. In the second case it was
   * published well after the held one, by the clock of the service. Once the held policy has expired, any policy of
   * the service replaces it.
   */
  offer(text, checksum) {
    const policy = PublishedPolicy.fromText(text, checksum);
    if (policy.study !== this.#study) {
      throw new PolicyError(`the policy is of study '${policy.study}', and '${this.#study}' is needed`);
    }
    const held = this.policy;
    const isSame = policy.checksum === held?.checksum;
    const isOlder = held !== null && !isSame && policy.version <= held.version;
    if (isOlder && this.isFresh && policy.validFrom <= held.validFrom + MIN_RESTART_SECONDS) {
      throw new PolicyError(`version ${policy.version} is older than version ${held.version}, which is held`);
    }
    if (!isSame) this.policy = policy;
    this.confirm();
  }

  /** Store the key that signs exposures, in memory only. */
  storeSigningKey(key) {
    if (key) this.#signingKey = key;
  }

  /** Return an event as it is sent: exposures that count get a signature, if there is a key. */
  sign(event) {
    if (this.#signingKey === null || event.type !== "exposure" || event.fallback || event.override) return event;
    return { ...event, signature: signExposure(this.#signingKey, this.#study, event) };
  }

  /** Make the held policy stale, because the study has stopped serving. */
  end() {
    this.#hasEnded = true;
  }

  /** Record that the held policy is still current. */
  confirm() {
    this.#hasEnded = false;
    this.#contact = this.#now();
    this.#resolveArrival();
  }
}

/** Cache of the last decision of each recent unit: two generations, of which the old one is dropped if the young is full. */
export class DecisionCache {
  #size;
  #young = new Map();
  #old = new Map();

  constructor(size) {
    this.#size = size;
  }

  /** Return the unit's last decision, or undefined. */
  get(unit) {
    const recent = this.#young.get(unit);
    if (recent !== undefined) return recent;
    const older = this.#old.get(unit);
    if (older !== undefined) this.put(unit, older);
    return older;
  }

  /** Store a unit's last decision. */
  put(unit, decision) {
    if (this.#young.size >= this.#size) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    this.#young.set(unit, decision);
  }

  /** Remove a unit, so that its next decision is made again. */
  forget(unit) {
    this.#young.delete(unit);
    this.#old.delete(unit);
  }
}
