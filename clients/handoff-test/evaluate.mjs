// Evaluates exports of a study for many units with the evaluators of flagd and GrowthBook, and prints the counts of
// variants as one JSON value: node evaluate.mjs < {"flagd": ..., "growthbook": ..., "flag": ..., "units": [...]}

import { readFileSync } from "node:fs";
import { FlagdCore, MemoryStorage } from "@openfeature/flagd-core";
import { GrowthBook } from "@growthbook/growthbook";

const { flagd, growthbook, flag, parameter, units, attributes } = JSON.parse(readFileSync(0, "utf8"));
const silent = { error() {}, warn() {}, info() {}, debug() {} };

const storage = new MemoryStorage(silent);
storage.setConfigurations(JSON.stringify(flagd), true); // true: refuses what flagd's schema does not allow
const core = new FlagdCore(storage, silent);
const single = `${flag}.${parameter}`;
const counts = { flagd: {}, growthbook: {} };
const differences = [];
const count = (platform, name) => (counts[platform][name] = (counts[platform][name] ?? 0) + 1);
for (const unit of units) {
  const context = { targetingKey: unit, ...attributes };
  const details = core.resolveObjectEvaluation(flag, {}, context);
  const alone = core.resolveNumberEvaluation(single, -1, context);
  count("flagd", details.reason === "TARGETING_MATCH" ? details.variant : "takes no part");
  if (details.value[parameter] !== alone.value || details.variant !== alone.variant) differences.push(unit);
}
const missing = core.resolveObjectEvaluation(flag, {}, {});

const logged = {};
const features = new GrowthBook({
  trackingCallback: (experiment, result) => (logged[result.hashValue] = [experiment.key, experiment.phase, result.key]),
});
features.initSync({ payload: growthbook });
for (const unit of units) {
  await features.setAttributes({ id: unit, ...attributes });
  const result = features.evalFeature(flag);
  const alone = features.evalFeature(single);
  count("growthbook", result.experimentResult?.key ?? "takes no part");
  if (result.value[parameter] !== alone.value) differences.push(unit);
}
await features.setAttributes({});
const nobody = features.evalFeature(flag);

console.log(
  JSON.stringify({
    counts,
    differences,
    missing: { variant: missing.variant, value: missing.value, metadata: missing.flagMetadata },
    nobody: { source: nobody.source, value: nobody.value },
    logged: logged[units[0]] ?? null,
  }),
);
