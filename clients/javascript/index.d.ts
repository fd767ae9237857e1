/** One parameter's value. */
export type Value = number | string | boolean;

/** Why a unit is served what it is served; "none" where nothing was drawn. */
export type Arm = "control" | "learner" | "outside" | "single" | "blend" | "held" | "none";

/**
 * SPLIT: drawn from the policy. DEFAULT: the baseline, for no policy is known or the unit cannot be drawn for.
 * STALE: the baseline, for the service was out of reach until the policy expired. OVERRIDE: asked for by name.
 * Only SPLIT is learned from.
 */
export type Reason = "SPLIT" | "DEFAULT" | "STALE" | "OVERRIDE";

/** What was given does not fit; the message says what was needed. */
export class BadInput extends Error {}

/** A published policy that cannot be read, or does not add up. */
export class BadPolicy extends BadInput {}

/** A candidate within an arm. */
export interface Cell {
  readonly arm: Arm;
  /** The candidate's index in the study. */
  readonly candidate: number;
  readonly name: string;
  readonly values: Readonly<Record<string, Value>>;
  /** Out of 2^53. */
  readonly width: number;
  /** width / 2^53: the probability of this arm and candidate together. */
  readonly propensity: number;
  /** Of the policy. */
  readonly version: number;
}

/** An immutable policy: which candidate each unit gets, and with what probability. */
export class Policy {
  private constructor();
  /** Read a document, checking all of it; throws BadPolicy. `checksum` is the SHA-256 of the text, in hexadecimal. */
  static fromText(text: string, checksum?: string | null): Policy;
  readonly study: string;
  readonly version: number;
  readonly round: number;
  readonly state: string;
  readonly mode: "shuffled" | "sticky";
  readonly salt: string;
  readonly cells: readonly Cell[];
  /** What to serve where nothing else may be; its propensity is 0. */
  readonly baseline: Cell;
  /** In seconds since 1970. */
  readonly validFrom: number;
  /** Seconds that a holder may go on drawing from it after its last contact with the service. */
  readonly expiresAfter: number;
  readonly text: string;
  readonly checksum: string;
  /** The unit's cell, the same wherever it is asked; throws BadInput unless the unit has 1 to 256 characters. */
  draw(unit: string): Cell;
  /** A candidate by its name, as an override would serve it. */
  named(name: string): Cell | undefined;
}

/** What happened to a unit, in numbers, texts and truth values; fields that are undefined are left out. */
export type Fields = Readonly<Record<string, Value | undefined>>;

/** One unit's candidate: the values to use, why, and with what probability they were drawn. */
export interface Assignment {
  /** Empty where what was given is no unit. */
  readonly unit: string;
  /** The candidate's parameters; empty where not even a baseline is known. */
  readonly values: Readonly<Record<string, Value>>;
  readonly name: string;
  /** The candidate's index; null where no policy was ever known. */
  readonly candidate: number | null;
  /** Of the policy; 0 where none was ever known. */
  readonly version: number;
  /** 0 where nothing was drawn. */
  readonly propensity: number;
  readonly arm: Arm;
  readonly reason: Reason;
  /** Say what happened to the unit under this decision; never throws. */
  track(event: string, fields?: Fields | null): void;
}

/** What a client can be given beside the address and the study. */
export interface ClientOptions {
  /** Where the service is, as in "https://pasto.example.com". */
  url: string;
  study: string;
  /** With the scopes evaluate and ingest. */
  apiKey?: string;
  /** What to serve before any policy is known. */
  baseline?: Readonly<Record<string, Value>>;
  /** In place of the global one. */
  fetch?: typeof globalThis.fetch;
  /** Seconds: how long a policy may be out of date where the service cannot say at once that it changed. 20. */
  pollInterval?: number;
  /** Seconds that an event waits for company. 1. */
  flushInterval?: number;
  /** Events kept while the service is away; then the oldest go, and are counted. 100,000. */
  maxBufferedEvents?: number;
  /** Units whose assignment is remembered, so that their exposure is sent once. 50,000. */
  decisionCacheSize?: number;
  /** Hears of everything that goes wrong. */
  onError?: (message: string) => void;
  /** Time, for tests. */
  clock?: { now(): number; sleep(seconds: number, signal?: AbortSignal): Promise<void> };
  /** Chance between 0 and 1, for the pauses between retries. */
  random?: () => number;
}

/** The exposures of one candidate: assigned == logged + dropped + pending. */
export interface Account {
  assigned: number;
  logged: number;
  dropped: number;
  pending: number;
}

export interface Status {
  /** Of the policy held; 0 for none. */
  version: number;
  /** Seconds since the service last confirmed the policy; null for none. */
  age: number | null;
  /** What a unit that comes now is served for. */
  reason: "SPLIT" | "DEFAULT" | "STALE";
  /** Events that the service has not answered for. */
  buffered: number;
  /** Exposures lost. */
  dropped: number;
  droppedMetrics: number;
  /** Events that will never arrive, counted by reason. */
  rejected: Record<string, number>;
  errors: number;
  lastError: string | null;
  /** By version and candidate. */
  accounts: Record<string, Record<string, Account>>;
}

/** Assigns units to candidates and reports what happened: never blocks, never throws, never gives up. */
export class Client {
  /** Throws TypeError for options that cannot work. */
  constructor(options: ClientOptions);
  /** Begin to keep the policy up to date and to send; resolves after the first answer to whether there is a policy. */
  start(): Promise<boolean>;
  /** Wait for a policy to decide by; resolves to whether there is one that has not expired. */
  waitUntilReady(seconds?: number): Promise<boolean>;
  /** The unit's candidate, and its exposure logged: once for each unit and policy. Whole numbers count as texts. */
  assign(unit: string | number | bigint, options?: { override?: string | null } | null): Assignment;
  /** Say what happened to a unit; it is credited to what the unit was served last. */
  track(unit: string | number | bigint, event: string, fields?: Fields | null): void;
  /** Send what is waiting now; resolves to whether the service has answered for all of it. Never rejects. */
  flush(): Promise<boolean>;
  /** Send what is waiting, then stop; resolves to whether everything arrived. */
  close(seconds?: number): Promise<boolean>;
  status(): Status;
}
