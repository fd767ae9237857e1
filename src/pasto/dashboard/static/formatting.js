// Text forms of numbers, by the rules of pasto/formatting.py: the browser formats what it draws itself.
"use strict";

const Formatting = (() => {
  const UNKNOWN = "–", SIGNIFICANT_DIGITS = 5;
  const isUnknown = (value) => value == null || Number.isNaN(value);
  const formats = new Map();

  // Halves go to the even digit, as in Python.
  function local(value, options) {
    const key = JSON.stringify(options);
    if (!formats.has(key)) formats.set(key, new Intl.NumberFormat("en", { roundingMode: "halfEven", ...options }));
    return formats.get(key).format(value);
  }

  function formatNumber(value) {
    if (isUnknown(value)) return UNKNOWN;
    const size = Math.abs(value);
    if (size < 1e-12) return "0";
    if (size >= 10 ** SIGNIFICANT_DIGITS && size < 1e15) return local(value, { maximumFractionDigits: 0 });
    const rounded = Number(value.toPrecision(SIGNIFICANT_DIGITS));
    if (Math.abs(rounded) >= 1e-4 && Math.abs(rounded) < 10 ** SIGNIFICANT_DIGITS) return local(rounded, { maximumSignificantDigits: SIGNIFICANT_DIGITS });
    const [digits, exponent] = rounded.toExponential().split("e");
    return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, "0")}`;
  }

  function formatPercent(share, decimals = 1) {
    if (isUnknown(share)) return UNKNOWN;
    const halfStep = 0.5 * 10 ** (-decimals - 2);
    if (share > 0 && share < halfStep) return `< ${10 ** -decimals}%`;
    if (share >= 1 - halfStep && share < 1) return `> ${100 - 10 ** -decimals}%`;
    return `${(100 * share).toFixed(decimals)}%`;
  }

  // A relative change that is given in percent.
  function formatLift(percent) {
    if (isUnknown(percent)) return UNKNOWN;
    return `${local(percent, { minimumFractionDigits: 2, maximumFractionDigits: 2, signDisplay: "always" })}%`;
  }

  const formatConfidence = (confidence) => `${Number((100 * confidence).toPrecision(10))}%`;

  return { formatNumber, formatPercent, formatLift, formatConfidence };
})();
