/** Value of one parameter. */
export type Value = number | string | boolean;

/** Arm of the traffic; "none" if nothing was drawn. */
export type Arm = "control" | "learner" | "not_enrolled" | "best_single" | "blend" | "paused" | "none";

/**
 * Reason of a decision. SPLIT: drawn from the policy. DEFAULT: the baseline, because there was no policy, the unit does
 * not take part in the study (arm "not_enrolled"), or it is not valid. STALE: the baseline, because the policy expired while the service was unavailable. OVERRIDE: requested by
 * name. The learner uses only SPLIT.
 */
export type Reason = "SPLIT" | "DEFAULT" | "STALE" | "OVERRIDE";

/** Argument that is not valid; the message names the value that is needed. */
export class InputError extends Error {}

/** Policy document that cannot be read or whose checks fail. */
export class PolicyError extends InputError {}

/** Candidate within an arm, and its width out of 2^53. */
export interface Bucket {
  readonly arm: Arm;
  /** Index of the candidate in the study. */
  readonly candidate: number;
  readonly name: string;
  readonly values: Readonly<Record<string, Value>>;
  /** Width out of 2^53; 0 if it is not drawn. */
  readonly width: number;
  /** width / 2^53: the probability of this arm and candidate together. */
  readonly propensity: number;
  /** Version of the policy. */
  readonly version: number;
  /** Segment whose units draw it; null if the policy has no segments, or if it is not drawn. */
  readonly segment: string | null;
}

/** Attributes of a unit, which the audience and the segments of a study read; values of other types meet no condition. */
export type Attributes = Readonly<Record<string, Value | null | undefined>>;

/** Interval of [0, 2^53): a unit takes part if its place under `salt` is at least `from` and below `until`. */
export interface EnrolmentSlice {
  readonly kind: "holdout" | "layer" | "ramp";
  readonly salt: string;
  readonly from: number;
  readonly until: number;
}

/** Condition on one attribute. */
export interface AudienceCondition {
  readonly attribute: string;
  readonly operator: "in" | "<" | "<=" | ">" | ">=";
  /** Values of one type; a comparison has one number. */
  readonly values: readonly Value[];
}

/** Attribute that divides units into parts: one for each value, or ranges between increasing cuts. */
export interface SegmentAttribute {
  readonly attribute: string;
  /** Values of one type; empty if there are cuts. */
  readonly values: readonly Value[];
  readonly cuts: readonly number[];
}

/** Rule that gives each unit one segment: the parts of all attributes, crossed. */
export interface SegmentRule {
  readonly attributes: readonly SegmentAttribute[];
  /** Segments in the order of the crossed parts, the last attribute fastest; without "other". */
  readonly names: readonly string[];
}

/** Immutable policy: the candidate of each unit, and its probability. */
export class PublishedPolicy {
  private constructor();
  /** Read and check a document; throws PolicyError. `checksum` is the SHA-256 of the text, in hexadecimal. */
  static fromText(text: string, checksum?: string | null): PublishedPolicy;
  readonly study: string;
  readonly version: number;
  readonly round: number;
  readonly state: string;
  readonly mode: "shuffled" | "sticky";
  readonly salt: string;
  /** Buckets of all units; with segments, those of the segment "other". */
  readonly cells: readonly Bucket[];
  /** Baseline as a fallback: arm "none", propensity 0. */
  readonly baseline: Bucket;
  /** Time of publication, in seconds since 1970. */
  readonly validFrom: number;
  /** Seconds that a client may draw from it after its last contact with the service. */
  readonly expiresAfter: number;
  /** True if the study accepts only signed exposures. */
  readonly signed: boolean;
  /** Slices of the units that take part; empty if all do. */
  readonly enrolment: readonly EnrolmentSlice[];
  /** Conditions on the attributes of the units that take part; empty if there are none. */
  readonly audience: readonly AudienceCondition[];
  /** Rule by which attributes decide on a unit's segment; null without segments. */
  readonly segments: SegmentRule | null;
  /** Attribute with the cluster of a unit, which is drawn instead of the unit; null if units are drawn. */
  readonly cluster: string | null;
  /** True if the policy has an enrolment, an audience or clusters, so some units do not take part. */
  readonly isPartial: boolean;
  /** Baseline for units that do not take part: arm "not_enrolled", width and propensity 0. */
  readonly notEnrolled: Bucket;
  /** The document as published. */
  readonly text: string;
  /** SHA-256 of the text, in hexadecimal. */
  readonly checksum: string;
  /**
   * Return the bucket of a unit, always the same for the same unit and attributes; `notEnrolled` if it does not take
   * part. Throws InputError unless the unit has 1 to 256 characters.
   */
  draw(unit: string, attributes?: Attributes | null): Bucket;
  /** Return the cluster of a unit; null if the policy has no clusters, or the attributes name none. */
  findCluster(attributes?: Attributes | null): string | null;
  /** Return a candidate by its name, as an override serves it. */
  named(name: string): Bucket | undefined;
}

/** Fields of a metric event: numbers, strings and booleans; fields that are undefined are left out. */
export type Fields = Readonly<Record<string, Value | undefined>>;

/** Candidate of one unit: its values, the reason, and the probability with which it was drawn. */
export interface Decision {
  /** Unit of the decision; empty if the given unit was not valid. */
  readonly unit: string;
  /** Values of the candidate's parameters; empty if there is not even a baseline. */
  readonly values: Readonly<Record<string, Value>>;
  /** Name of the candidate. */
  readonly name: string;
  /** Index of the candidate in the study; null if there was never a policy. */
  readonly candidate: number | null;
  /** Version of the policy; 0 if there was never one. */
  readonly version: number;
  /** Probability with which this arm and candidate were drawn; 0 if nothing was drawn. */
  readonly propensity: number;
  readonly arm: Arm;
  /** Segment of the unit; null if the policy has no segments, or if nothing was drawn. */
  readonly segment: string | null;
  readonly reason: Reason;
  /** Cluster that was drawn instead of the unit; null if the study assigns units. */
  readonly cluster: string | null;
  /** Send a metric event of the unit under this decision; never throws. */
  track(event: string, fields?: Fields | null): void;
}

/** Options of a client. */
export interface ClientOptions {
  /** Address of the service, such as "https://pasto.example.com". */
  url: string;
  /** Name of the study. */
  study: string;
  /** API key with the scopes evaluate and ingest. */
  apiKey?: string;
  /** Values to serve before any policy is available. */
  baseline?: Readonly<Record<string, Value>>;
  /** Function in place of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Seconds between two requests for the policy if the service does not support long polls. Default: 20. */
  pollInterval?: number;
  /** Seconds that an event may wait for others. Default: 1. */
  flushInterval?: number;
  /** Most events that wait while the service is unavailable; then the oldest are dropped and counted. Default: 100,000. */
  maxBufferedEvents?: number;
  /** Units whose decisions are cached, so that their exposure is sent once. Default: 50,000. */
  decisionCacheSize?: number;
  /** Function that receives the message of every problem. */
  onError?: (message: string) => void;
  /** Clock in seconds, for tests. */
  clock?: { now(): number; sleep(seconds: number, signal?: AbortSignal): Promise<void> };
  /** Random number from 0 to 1, for the jitter of retries. */
  random?: () => number;
}

/** Exposures of one candidate: assigned == logged + dropped + pending. */
export interface CandidateTally {
  assigned: number;
  logged: number;
  dropped: number;
  pending: number;
}

/** State of a client. */
export interface Status {
  /** Version of the policy; 0 if there is none. */
  version: number;
  /** Seconds since the service last confirmed the policy; null if there is none. */
  age: number | null;
  /** Reason of a decision that is made now. */
  reason: "SPLIT" | "DEFAULT" | "STALE";
  /** Events that are not settled. */
  buffered: number;
  /** Exposures that are lost. */
  dropped: number;
  /** Metric events that are lost. */
  droppedMetrics: number;
  /** Decisions of units that do not take part in the study. */
  notEnrolled: number;
  /** Metric events of such units; they are not sent. */
  notEnrolledEvents: number;
  /** Events that the service or the client rejected, by reason. */
  rejected: Record<string, number>;
  errors: number;
  lastError: string | null;
  /** Exposures by version and candidate. */
  accounts: Record<string, Record<string, CandidateTally>>;
}

/** Client of one study: assigns units to candidates and sends events; its methods never block and never throw. */
export class Client {
  /** Throws TypeError for options that are not valid. */
  constructor(options: ClientOptions);
  /** Start to poll and to send; resolves after the first answer to whether there is a policy. */
  start(): Promise<boolean>;
  /** Wait for a policy; resolves to whether there is one that has not expired. */
  waitUntilReady(seconds?: number): Promise<boolean>;
  /**
   * Return the candidate of a unit, and log its exposure once for each unit and policy. An integer stands for its
   * digits. The study's audience reads `attributes`. A unit that does not take part gets the baseline with the arm
   * "not_enrolled", without an exposure. `override` serves a candidate by its name, for a preview.
   */
  assign(
    unit: string | number | bigint,
    options?: { attributes?: Attributes | null; override?: string | null } | null,
  ): Decision;
  /** Send a metric event of a unit; it counts for the candidate that the unit was served last. */
  track(unit: string | number | bigint, event: string, fields?: Fields | null): void;
  /** Send the waiting events now; resolves to whether the service accounted for all of them. Never rejects. */
  flush(): Promise<boolean>;
  /** Send the waiting events, then stop; resolves to whether all arrived. A closed client serves the baseline. */
  close(seconds?: number): Promise<boolean>;
  /** Return the state of the client as plain values. */
  status(): Status;
}
