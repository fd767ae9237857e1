// The policy a client decides by: only a better one replaces it, and only time makes it stale.

import { BadPolicy, Policy } from "./policy.mjs";
import { signExposure } from "./signature.mjs";

/** Seconds by which a policy of an earlier version must be younger to be believed; clocks of nodes differ by less. */
const LATER = 60;

/** Holds the last good policy, and until when it may be drawn from. */
export class Holder {
  #study;
  #now;
  #contact = -Infinity;
  #ended = false;
  #arrived;
  #arrival;
  #signingKey = null;

  constructor(study, now) {
    this.#study = study;
    this.#now = now;
    this.policy = null;
    this.#arrival = new Promise((resolve) => {
      this.#arrived = resolve;
    });
  }

  /** Whether there is a policy that has not expired. */
  get fresh() {
    return this.policy !== null && !this.#ended && this.age < this.policy.expiresAfter;
  }

  /** Seconds since the service last confirmed the policy; null where none is held. */
  get age() {
    return this.policy === null ? null : this.#now() - this.#contact;
  }

  /** Resolves when there is a first policy. */
  arrival() {
    return this.#arrival;
  }

  /**
   * Take a policy if it is whole and is not behind the one held; else throws BadPolicy.
   *
   * A version that goes back is a copy that came late, or a study that was made anew under the old name. The second is
   * told by the service's own clock: it was published well after the one held. Once that has expired, whatever the
   * service says is taken.
   */
  offer(text, checksum) {
    const policy = Policy.fromText(text, checksum);
    if (policy.study !== this.#study) {
      throw new BadPolicy(`the policy is of study '${policy.study}', and '${this.#study}' was asked for`);
    }
    const held = this.policy;
    const same = policy.checksum === held?.checksum;
    const behind = held !== null && !same && policy.version <= held.version;
    if (behind && this.fresh && policy.validFrom <= held.validFrom + LATER) {
      throw new BadPolicy(`version ${policy.version} was offered and version ${held.version} is held already`);
    }
    if (!same) this.policy = policy;
    this.confirm();
  }

  /** Keep the key that the service gives to sign exposures with, in memory only. */
  keepSigningKey(key) {
    if (key) this.#signingKey = key;
  }

  /** Return an event as it is sent: an exposure that is learned from gets a signature if there is a key. */
  sign(event) {
    if (this.#signingKey === null || event.type !== "exposure" || event.fallback || event.override) return event;
    return { ...event, signature: signExposure(this.#signingKey, this.#study, event) };
  }

  /** The service says that the study serves no policy any more: what is held is stale from now on. */
  end() {
    this.#ended = true;
  }

  /** The service says that the policy held is still the one. */
  confirm() {
    this.#ended = false;
    this.#contact = this.#now();
    this.#arrived();
  }
}

/** The last assignment of each unit, for the units that came lately: two generations, of which the older one goes. */
export class Remembered {
  #size;
  #young = new Map();
  #old = new Map();

  constructor(size) {
    this.#size = size;
  }

  get(unit) {
    const found = this.#young.get(unit);
    if (found !== undefined) return found;
    const older = this.#old.get(unit);
    if (older !== undefined) this.put(unit, older);
    return older;
  }

  put(unit, assignment) {
    if (this.#young.size >= this.#size) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    this.#young.set(unit, assignment);
  }

  forget(unit) {
    this.#young.delete(unit);
    this.#old.delete(unit);
  }
}
