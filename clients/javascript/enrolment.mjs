// Enrolment: the units that take part in a study, by slices of the hash and by conditions on attributes.

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

/** Throw PolicyError unless a condition can be applied. */
export function checkCondition({ attribute, operator, values }) {
  const problem = findProblem(operator, values);
  if (problem !== null) throw new PolicyError(`the audience's condition on ${quoteValue(attribute)} ${problem}`);
}

/** Return whether attributes meet all conditions. One that is missing, or has another type, does not. */
export function isInAudience(audience, attributes) {
  return audience.every((condition) => isMet(condition, attributes ?? {}));
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
