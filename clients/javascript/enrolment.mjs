// Enrolment and segments: the units that take part in a study, and the groups that its attributes divide them into.

import { PolicyError, quoteValue } from "./errors.mjs";

/** Purposes of a slice: units of no study, units of one study of a layer, units that a ramp has reached. */
export const SLICE_KINDS = ["holdout", "layer", "ramp"];
const COMPARISONS = new Map([
  ["<", (value, limit) => value < limit],
  ["<=", (value, limit) => value <= limit],
  [">", (value, limit) => value > limit],
  [">=", (value, limit) => value >= limit],
]);
const OPERATORS = ["in", ...COMPARISONS.keys()];
const TYPES = ["string", "number", "boolean"];
/** Largest number of an attribute; beyond it, languages print and read numbers differently. */
const MAX_ATTRIBUTE_NUMBER = 1e15;
const MAX_CLUSTER_CHARACTERS = 256;
const LONE_SURROGATE = /\p{Surrogate}/u;

/** Segment of the units that are in no segment of a rule. */
export const OTHER_SEGMENT = "other";
/** Code points of a segment's name. */
const MAX_SEGMENT_CHARACTERS = 200;

/** Throw PolicyError unless a condition can be applied. */
export function checkCondition({ attribute, operator, values }) {
  const problem = findProblem(operator, values);
  if (problem !== null) throw new PolicyError(`the audience's condition on ${quoteValue(attribute)} ${problem}`);
}

/** Return whether attributes meet all conditions. One that is missing, or has another type, does not. */
export function isInAudience(audience, attributes) {
  return audience.every((condition) => isMet(condition, attributes ?? {}));
}

/** Throw PolicyError unless an attribute can divide units into parts: by its values, or by ranges between cuts. */
export function checkSegmentAttribute({ attribute, values, cuts }) {
  const problem = findSegmentProblem(values, cuts);
  if (problem !== null) throw new PolicyError(`the segments' attribute ${quoteValue(attribute)} ${problem}`);
}

/** Throw PolicyError unless each combination of parts has one name, and no other segment has it. */
export function checkSegmentRule({ attributes, names }) {
  const read = new Set(attributes.map(({ attribute }) => attribute));
  if (read.size === 0 || read.size < attributes.length) {
    throw new PolicyError("the attributes of segments must be at least one, and each once");
  }
  const needed = attributes.reduce((product, attribute) => product * countParts(attribute), 1);
  if (names.length !== needed) {
    throw new PolicyError(`segments have ${names.length} distributions, and their attributes give ${needed}`);
  }
  if (new Set([...names, OTHER_SEGMENT]).size <= needed) {
    throw new PolicyError(`segments have a name twice; '${OTHER_SEGMENT}' has the other units`);
  }
  if (names.some((name) => [...name].length > MAX_SEGMENT_CHARACTERS)) {
    throw new PolicyError(`segments have a name of more than ${MAX_SEGMENT_CHARACTERS} characters`);
  }
}

/** Return the segment of a unit: the crossed parts of its attributes, or "other" if it is in no part of one of them. */
export function findSegment({ attributes, names }, given) {
  let place = 0;
  for (const attribute of attributes) {
    const part = findPart(attribute, given ?? {});
    if (part === -1) return OTHER_SEGMENT;
    place = place * countParts(attribute) + part;
  }
  return names[place];
}

function countParts({ values, cuts }) {
  return values.length || cuts.length + 1;
}

/** Return the part of a unit; -1 if its attribute is missing, or in no part. */
function findPart({ attribute, values, cuts }, given) {
  const value = Object.hasOwn(given, attribute) ? given[attribute] : undefined;
  if (typeof value === "number" && !(Math.abs(value) <= MAX_ATTRIBUTE_NUMBER)) return -1;
  if (values.length > 0) return values.indexOf(value);
  return typeof value === "number" ? cuts.filter((cut) => cut <= value).length : -1;
}

/** Return the cluster that an attribute names, as text; null if it names none. An integer stands for its digits. */
export function readCluster(attribute, attributes) {
  const value = Object.hasOwn(attributes ?? {}, attribute) ? attributes[attribute] : undefined;
  if (Number.isInteger(value) && Math.abs(value) <= MAX_ATTRIBUTE_NUMBER) return String(value + 0);
  if (typeof value !== "string" || value === "" || LONE_SURROGATE.test(value)) return null;
  const isLong = value.length > MAX_CLUSTER_CHARACTERS;
  return isLong && [...value].length > MAX_CLUSTER_CHARACTERS ? null : value;
}

function isMet({ attribute, operator, values }, attributes) {
  const value = Object.hasOwn(attributes, attribute) ? attributes[attribute] : undefined;
  if (typeof value === "number" && !(Math.abs(value) <= MAX_ATTRIBUTE_NUMBER)) return false;
  if (operator === "in") return values.includes(value);
  return typeof value === "number" && COMPARISONS.get(operator)(value, values[0]);
}

/** Return the problem of a condition; null if it can be applied. */
function findProblem(operator, values) {
  if (!OPERATORS.includes(operator)) {
    return `has the operator ${quoteValue(operator)}; the operators are ${OPERATORS.join(", ")}`;
  }
  const types = new Set(values.map((value) => typeof value));
  const [type] = types;
  if (types.size !== 1 || !TYPES.includes(type)) {
    return `has the values ${quoteValue(values)}; it needs texts, numbers or booleans, all of one type`;
  }
  if (type === "number" && values.some((value) => !(Math.abs(value) <= MAX_ATTRIBUTE_NUMBER))) {
    return `has a number above ${MAX_ATTRIBUTE_NUMBER}; nothing meets it`;
  }
  if (COMPARISONS.has(operator) && (values.length !== 1 || type !== "number")) {
    return `compares with ${quoteValue(values)}; ${operator} takes one number`;
  }
  return null;
}

/** Return the problem of an attribute of segments; null if it can be applied. */
function findSegmentProblem(values, cuts) {
  if (values.length > 0 === cuts.length > 0) return "needs either values or cuts, at least one";
  if (values.length > 0) {
    return findProblem("in", values) ?? (new Set(values).size < values.length ? "has a value twice" : null);
  }
  const isRising = cuts.every((cut, place) => typeof cut === "number" && (place === 0 || cuts[place - 1] < cut));
  if (!isRising || cuts.some((cut) => !(Math.abs(cut) <= MAX_ATTRIBUTE_NUMBER))) {
    return `has the cuts ${quoteValue(cuts)}; they must be numbers that rise, at most ${MAX_ATTRIBUTE_NUMBER} in size`;
  }
  return null;
}
