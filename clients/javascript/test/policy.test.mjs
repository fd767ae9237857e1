import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { BadInput, BadPolicy, Policy } from "../index.mjs";

const cases = JSON.parse(
  readFileSync(new URL("../../conformance/cases.json", import.meta.url), { encoding: "utf8" }),
);

test("there are cases to repeat", () => {
  assert.ok(cases.policies.reduce((sum, policy) => sum + policy.draws.length, 0) >= 1000);
  assert.ok(cases.refused_documents.length >= 50);
});

for (const { about, text, checksum, draws } of cases.policies) {
  test(`decides alike: ${about}`, () => {
    const policy = Policy.fromText(text, checksum);
    const candidates = new Map(JSON.parse(text).candidates.map((candidate) => [candidate.index, candidate]));
    for (const [number, arm, candidate, width] of draws) {
      const cell = policy.draw(cases.units[number]);
      const { name, values } = candidates.get(candidate);
      const expected = { arm, candidate, name, values, width, propensity: width / 2 ** 53, version: policy.version };
      assert.deepEqual(cell, expected);
    }
    assert.equal(
      policy.cells.reduce((sum, cell) => sum + cell.width, 0),
      2 ** 53,
    );
  });
}

test("what is no unit is refused by every policy", () => {
  for (const { text } of cases.policies) {
    const policy = Policy.fromText(text);
    for (const unit of [...cases.refused_units, 7, null, undefined, {}, ["a"]]) {
      assert.throws(() => policy.draw(unit), BadInput);
    }
  }
});

for (const { about, text } of cases.refused_documents) {
  test(`is refused: ${about}`, () => {
    assert.throws(() => Policy.fromText(text), BadPolicy);
  });
}

test("a text that is not the one of its checksum is refused", () => {
  const [{ text, checksum }] = cases.policies;
  assert.equal(Policy.fromText(text).checksum, checksum);
  assert.throws(() => Policy.fromText(`${text} `, checksum), /cut short/);
  assert.throws(() => Policy.fromText(text, ""), /cut short/);
  assert.throws(() => Policy.fromText("[".repeat(1_000_000)), BadPolicy);
  for (const other of [null, undefined, 7, {}, "\ud800"]) assert.throws(() => Policy.fromText(other), BadPolicy);
});

test("fields of a later release are ignored", () => {
  const { sha256, ...document } = JSON.parse(cases.policies[3].text);
  document.signature = "…";
  document.cells[0].since = 3;
  const [policy, again] = [Policy.fromText(cases.policies[3].text), Policy.fromText(JSON.stringify(document))];
  assert.deepEqual(again.cells, policy.cells);
});

test("nothing about a policy can be changed, and the baseline is there", () => {
  const policy = Policy.fromText(cases.policies[3].text);
  const cell = policy.draw("a");
  assert.throws(() => {
    policy.version = 2;
  }, TypeError);
  assert.throws(() => {
    cell.values.weight = 2;
  }, TypeError);
  assert.deepEqual(policy.baseline, policy.named("c4"));
  assert.equal(policy.baseline.propensity, 0);
  assert.equal(policy.named("constructor"), undefined);
});

test("a parameter may have any name", () => {
  const { sha256, ...document } = JSON.parse(cases.policies[0].text);
  const text = JSON.stringify(document).replace('"weight"', '"__proto__"');
  const { values } = Policy.fromText(text).draw("a");
  assert.deepEqual(Object.keys(values), ["__proto__"]);
  assert.equal(Object.getPrototypeOf(values), Object.prototype);
});
