// Policy documents: the JSON form of a published policy, its buckets, and their checks.

import { OTHER_SEGMENT, SLICE_KINDS, checkCondition, checkSegmentAttribute, checkSegmentRule } from "./enrolment.mjs";
import { PolicyError, quoteValue } from "./errors.mjs";
import { formatHex, sha256 } from "./sha256.mjs";

/** Sum of all bucket widths; every integer up to it is exact in a double, in every language. */
export const BUCKET_TOTAL = 2 ** 53;
export const LONE_SURROGATE = /\p{Surrogate}/u;
const FORMATS = [1, 2];
const ARMS = ["control", "learner", "not_enrolled", "best_single", "blend", "paused"];
/** Arms by their names in format 1. */
const RENAMED_ARMS = new Map([
  ["outside", "not_enrolled"],
  ["single", "best_single"],
  ["held", "paused"],
]);
const OWN_CHECKSUM = /,"sha256":"([0-9a-f]{64})"\}$/;
const MAX_SECONDS = 1e15;
const encoder = new TextEncoder();

/** Read a document; throw PolicyError with the name of the field that is wrong. */
export function readPolicy(text, checksum) {
  const textChecksum = verifyChecksums(text, checksum);
  const fields = checkObject(parsePolicy(text), "the policy");
  if (!hasChecksum(text) && Object.hasOwn(fields, "sha256")) {
    throw new PolicyError("sha256 must be the policy's last field, as published; pass the document on unchanged");
  }
  const arms = readArms(fields);
  const document = {
    study: readText(fields, "study"),
    version: readInteger(fields, "version"),
    round: readInteger(fields, "round"),
    state: readText(fields, "state"),
    mode: readText(fields, "mode"),
    salt: readText(fields, "salt"),
    baseline: readInteger(fields, "baseline"),
    candidates: readCandidates(readArray(fields, "candidates")),
    validFrom: readSeconds(fields, "valid_from"),
    expiresAfter: readSeconds(fields, "expires_after"),
    signed: readFlag(fields, "signed"),
    text,
    checksum: textChecksum,
  };
  if (document.mode !== "shuffled" && document.mode !== "sticky") {
    throw new PolicyError(`mode is ${quoteValue(document.mode)}; it can be shuffled or sticky`);
  }
  if (document.expiresAfter <= 0) throw new PolicyError("expires_after must be a positive number of seconds");
  if (!document.candidates.has(document.baseline)) {
    throw new PolicyError(`baseline is ${document.baseline}, which is not among the candidates`);
  }
  const isPresent = fields.format !== 1;
  const scope = { candidates: document.candidates, arms, version: document.version };
  const segments = isPresent ? readSegments(fields, scope) : null;
  const cells = readCells(readArray(fields, "cells"), scope, "cells", segments === null ? null : OTHER_SEGMENT);
  segments?.cells.set(OTHER_SEGMENT, cells);
  const enrolment = isPresent ? readEnrolment(readOptionalArray(fields, "enrolment")) : [];
  const audience = isPresent ? readAudience(readOptionalArray(fields, "audience")) : [];
  const hasCluster = isPresent && Object.hasOwn(fields, "cluster") && fields.cluster !== null;
  const cluster = hasCluster ? readText(fields, "cluster") : null;
  if (cluster !== null && segments !== null) {
    throw new PolicyError("cluster cannot be next to segments, which would divide clusters");
  }
  const drawn = segments === null ? cells : [...segments.cells.values()].flat();
  const isPartial = enrolment.length + audience.length > 0 || cluster !== null;
  if (isPartial && drawn.some(({ arm }) => arm === "not_enrolled")) {
    throw new PolicyError("cells have the arm 'not_enrolled' next to enrolment, audience or cluster, which replace it");
  }
  return {
    ...document,
    cells,
    enrolment: Object.freeze(enrolment),
    audience: Object.freeze(audience),
    segments: segments === null ? null : segments.rule,
    cellsBySegment: segments === null ? new Map() : segments.cells,
    cluster,
  };
}

/** Return whether a document carries its own checksum, which `readPolicy` verifies. */
export function hasChecksum(text) {
  return OWN_CHECKSUM.test(text);
}

/** Return the SHA-256 of a text; throw PolicyError unless it is the given one and fits the document's own. */
function verifyChecksums(text, checksum) {
  if (typeof text !== "string") throw new PolicyError(`a policy is read from a string, got ${quoteValue(text)}`);
  if (LONE_SURROGATE.test(text)) throw new PolicyError("the policy holds half a surrogate pair, which no text may");
  const textChecksum = hashText(text);
  if (checksum !== undefined && checksum !== null && checksum !== textChecksum) {
    throw new PolicyError(
      `the policy's checksum should be ${quoteValue(checksum)} and is ${textChecksum}: it was changed or cut on the way`,
    );
  }
  const own = OWN_CHECKSUM.exec(text);
  if (own !== null && own[1] !== hashText(`${text.slice(0, own.index)}}`)) {
    throw new PolicyError("the policy is not the text that its sha256 was made of: it was changed on its way");
  }
  return textChecksum;
}

function hashText(text) {
  return formatHex(sha256(encoder.encode(text)));
}

function parsePolicy(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new PolicyError(`the policy is not JSON: ${error.message}`);
  }
}

/** Check the format, and return the present name of each arm that it allows. */
function readArms(fields) {
  const format = readField(fields, "format");
  if (!FORMATS.includes(format)) {
    throw new PolicyError(
      `format is ${quoteValue(format)} and only ${FORMATS.join(" and ")} can be read here; upgrade pasto to read a newer one`,
    );
  }
  if (format === 1) {
    const former = new Map([...RENAMED_ARMS].map(([name, arm]) => [arm, name]));
    return new Map(ARMS.map((arm) => [former.get(arm) ?? arm, arm]));
  }
  return new Map(ARMS.map((arm) => [arm, arm]));
}

/** Return name and values of each candidate by its index. */
function readCandidates(items) {
  const candidates = new Map();
  const names = new Set();
  items.forEach((item, position) => {
    const place = `candidates[${position}]`;
    const fields = checkObject(item, place);
    const index = readInteger(fields, "index", place);
    const name = readText(fields, "name", place);
    if (candidates.has(index) || names.has(name)) {
      throw new PolicyError(`${place} repeats candidate ${index} '${name}'; each index and name comes once`);
    }
    const values = checkObject(readField(fields, "values", place), `${place}.values`);
    for (const [parameter, value] of Object.entries(values)) checkValue(parameter, value, `${place}.values`);
    candidates.set(index, { name, values: Object.freeze(values) });
    names.add(name);
  });
  return candidates;
}

function checkValue(parameter, value, place) {
  const isValid =
    typeof value === "boolean" || Number.isFinite(value) || (typeof value === "string" && !LONE_SURROGATE.test(value));
  if (!isValid || LONE_SURROGATE.test(parameter)) {
    throw new PolicyError(
      `${place}[${quoteValue(parameter)}] is ${quoteValue(value)}; a value is a finite number, a string or a boolean`,
    );
  }
}

/** Return buckets of a document: their widths sum to BUCKET_TOTAL, and those of one arm are neighbours. */
function readCells(items, { candidates, arms, version }, listPlace, segment) {
  const candidatesByArm = new Map();
  let lastEnd = 0;
  let lastArm = null;
  const buckets = items.map((item, position) => {
    const place = `${listPlace}[${position}]`;
    const fields = checkObject(item, place);
    const writtenArm = readText(fields, "arm", place);
    const candidate = readInteger(fields, "candidate", place);
    const until = readInteger(fields, "until", place);
    if (!arms.has(writtenArm)) {
      throw new PolicyError(`${place}.arm is ${quoteValue(writtenArm)}; the arms are ${[...arms.keys()].join(", ")}`);
    }
    const arm = arms.get(writtenArm);
    if (!candidates.has(candidate)) {
      throw new PolicyError(`${place}.candidate is ${candidate}, which is not among the candidates`);
    }
    if (arm !== lastArm && candidatesByArm.has(arm)) {
      throw new PolicyError(`${place} returns to arm '${arm}'; the cells of one arm must be neighbours`);
    }
    if (candidatesByArm.get(arm)?.has(candidate)) {
      throw new PolicyError(`${place} repeats candidate ${candidate} in arm '${arm}'; add its shares up instead`);
    }
    if (until <= lastEnd) {
      throw new PolicyError(`${place}.until is ${until}, which is not above the cut before it; cuts must increase`);
    }
    if (arm !== lastArm) candidatesByArm.set(arm, new Set());
    candidatesByArm.get(arm).add(candidate);
    const width = until - lastEnd;
    const { name, values } = candidates.get(candidate);
    lastArm = arm;
    lastEnd = until;
    return Object.freeze({ arm, candidate, name, values, width, propensity: width / BUCKET_TOTAL, version, segment });
  });
  if (lastEnd !== BUCKET_TOTAL) {
    throw new PolicyError(
      `the last of ${listPlace} ends at ${lastEnd}; the cells must cover the line up to ${BUCKET_TOTAL}`,
    );
  }
  return Object.freeze(buckets);
}

/** Return the rule of the segments and the buckets of each, except "other"; null without segments. */
function readSegments(fields, scope) {
  if (!Object.hasOwn(fields, "segments") || fields.segments === null) return null;
  const given = checkObject(fields.segments, "segments");
  const attributes = readArray(given, "attributes", "segments").map((item, position) => {
    const place = `segments.attributes[${position}]`;
    const part = checkObject(item, place);
    const [values, cuts] = ["values", "cuts"].map((field) => {
      const isAbsent = !Object.hasOwn(part, field) || part[field] === null;
      return Object.freeze(isAbsent ? [] : checkTexts(readArray(part, field, place), place));
    });
    const attribute = Object.freeze({ attribute: readText(part, "attribute", place), values, cuts });
    checkSegmentAttribute(attribute);
    return attribute;
  });
  const cells = new Map();
  const names = readArray(given, "distributions", "segments").map((item, position) => {
    const place = `segments.distributions[${position}]`;
    const distribution = checkObject(item, place);
    const name = readText(distribution, "name", place);
    cells.set(name, readCells(readArray(distribution, "cells", place), scope, `${place}.cells`, name));
    return name;
  });
  const rule = Object.freeze({ attributes: Object.freeze(attributes), names: Object.freeze(names) });
  checkSegmentRule(rule);
  return { rule, cells };
}

/** Return the slices of the units that take part. */
function readEnrolment(items) {
  return items.map((item, position) => {
    const place = `enrolment[${position}]`;
    const fields = checkObject(item, place);
    const kind = readText(fields, "kind", place);
    const salt = readText(fields, "salt", place);
    const from = readInteger(fields, "from", place);
    const until = readInteger(fields, "until", place);
    if (!SLICE_KINDS.includes(kind)) {
      throw new PolicyError(`${place}.kind is ${quoteValue(kind)}; the kinds are ${SLICE_KINDS.join(", ")}`);
    }
    if (from >= until) {
      throw new PolicyError(`${place} is from ${from} until ${until}, which no unit is in; until must be above from`);
    }
    return Object.freeze({ kind, salt, from, until });
  });
}

/** Return the conditions on the attributes of the units that take part. */
function readAudience(items) {
  return items.map((item, position) => {
    const place = `audience[${position}]`;
    const fields = checkObject(item, place);
    const attribute = readText(fields, "attribute", place);
    const operator = readText(fields, "operator", place);
    const values = readField(fields, "values", place);
    if (!Array.isArray(values)) throw new PolicyError(`${place}.values must be a JSON array, got ${quoteValue(values)}`);
    const condition = { attribute, operator, values: Object.freeze(checkTexts(values, place)) };
    checkCondition(condition);
    return Object.freeze(condition);
  });
}

/** Return values, in which texts hold no half of a surrogate pair. */
function checkTexts(values, place) {
  if (values.some((value) => typeof value === "string" && LONE_SURROGATE.test(value))) {
    throw new PolicyError(`a value in ${place} holds half a surrogate pair, which no text may`);
  }
  return values;
}

function readField(fields, field, place = "the policy") {
  if (!Object.hasOwn(fields, field)) throw new PolicyError(`${field} is missing from ${place}`);
  return fields[field];
}

function checkObject(value, place) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new PolicyError(`${place} must be a JSON object, got ${quoteValue(value)}`);
  }
  return value;
}

function readArray(fields, field, place = "the policy") {
  const value = readField(fields, field, place);
  if (!Array.isArray(value)) {
    throw new PolicyError(`${field} in ${place} must be a JSON array, got ${quoteValue(value)}`);
  }
  return value;
}

/** Return an array that may be missing or null; an empty one is not valid, because it could mean all or none. */
function readOptionalArray(fields, field) {
  if (!Object.hasOwn(fields, field) || fields[field] === null) return [];
  const items = readArray(fields, field);
  if (items.length === 0) throw new PolicyError(`${field} is empty; leave it out if all units take part`);
  return items;
}

function readInteger(fields, field, place = "the policy") {
  const value = readField(fields, field, place);
  if (!Number.isInteger(value) || value < 0 || value > BUCKET_TOTAL) {
    throw new PolicyError(`${field} in ${place} must be a whole number from 0 to 2^53, got ${quoteValue(value)}`);
  }
  return value;
}

function readSeconds(fields, field) {
  const value = readField(fields, field);
  if (typeof value !== "number" || !(Math.abs(value) <= MAX_SECONDS)) {
    throw new PolicyError(`${field} must be a number of seconds, got ${quoteValue(value)}`);
  }
  return value;
}

function readFlag(fields, field) {
  const value = Object.hasOwn(fields, field) ? fields[field] : false;
  if (typeof value !== "boolean") throw new PolicyError(`${field} must be true or false, got ${quoteValue(value)}`);
  return value;
}

function readText(fields, field, place = "the policy") {
  const value = readField(fields, field, place);
  if (typeof value !== "string" || value === "" || value.includes("\0") || LONE_SURROGATE.test(value)) {
    throw new PolicyError(
      `${field} in ${place} must be a text of at least one character without NUL, got ${quoteValue(value)}`,
    );
  }
  return value;
}
