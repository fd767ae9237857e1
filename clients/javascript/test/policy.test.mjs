import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { InputError, PolicyError, PublishedPolicy } from "../index.mjs";

const cases = JSON.parse(
  readFileSync(new URL("../../conformance/cases.json", import.meta.url), { encoding: "utf8" }),
);

test("there are cases to repeat", () => {
  assert.ok(cases.policies.reduce((sum, policy) => sum + policy.draws.length, 0) >= 1000);
  assert.ok(cases.refused_documents.length >= 50);
});

for (const { about, text, checksum, draws } of cases.policies) {
  test(`makes the same decisions: ${about}`, () => {
    const policy = PublishedPolicy.fromText(text, checksum);
    const candidates = new Map(JSON.parse(text).candidates.map((candidate) => [candidate.index, candidate]));
    for (const [number, arm, candidate, width, which, segment = null] of draws) {
      const bucket = policy.draw(cases.units[number], cases.attributes[which]);
      const { name, values } = candidates.get(candidate);
      const propensity = width / 2 ** 53;
      assert.deepEqual(bucket, { arm, candidate, name, values, width, propensity, version: policy.version, segment });
    }
    assert.equal(
      policy.cells.reduce((sum, cell) => sum + cell.width, 0),
      2 ** 53,
    );
  });
}

test("every policy rejects values that are not units", () => {
  for (const { text } of cases.policies) {
    const policy = PublishedPolicy.fromText(text);
    for (const unit of [...cases.refused_units, 7, null, undefined, {}, ["a"]]) {
      assert.throws(() => policy.draw(unit), InputError);
    }
  }
});

for (const { about, text } of cases.refused_documents) {
  test(`a document is rejected: ${about}`, () => {
    assert.throws(() => PublishedPolicy.fromText(text), PolicyError);
  });
}

test("a text with another checksum is rejected", () => {
  const [{ text, checksum }] = cases.policies;
  assert.equal(PublishedPolicy.fromText(text).checksum, checksum);
  assert.throws(() => PublishedPolicy.fromText(`${text} `, checksum), /cut on the way/);
  assert.throws(() => PublishedPolicy.fromText(text, ""), /cut on the way/);
  assert.throws(() => PublishedPolicy.fromText("[".repeat(1_000_000)), PolicyError);
  for (const other of [null, undefined, 7, {}, "\ud800"]) {
    assert.throws(() => PublishedPolicy.fromText(other), PolicyError);
  }
});

test("signed must be true or false", () => {
  const { sha256, ...document } = JSON.parse(cases.policies[0].text);
  for (const signed of [true, false]) PublishedPolicy.fromText(JSON.stringify({ ...document, signed }));
  for (const signed of [1, null, "true", {}]) {
    assert.throws(() => PublishedPolicy.fromText(JSON.stringify({ ...document, signed })), /signed must be true or false/);
  }
});

test("attributes of any type are read without an error", () => {
  const { sha256, ...document } = JSON.parse(cases.policies[3].text);
  document.cells = document.cells.map((cell) => (cell.arm === "not_enrolled" ? { ...cell, arm: "blend" } : cell));
  document.audience = [{ attribute: "days", operator: ">=", values: [7] }];
  const policy = PublishedPolicy.fromText(JSON.stringify(document));
  assert.notEqual(policy.draw("a", { days: 7 }), policy.notEnrolled);
  for (const days of [6, NaN, Infinity, 9n, "9", [9], { days: 9 }, new Number(9), true, null, undefined, () => 9]) {
    assert.equal(policy.draw("a", { days }), policy.notEnrolled);
  }
  for (const attributes of [null, undefined, "days", 9, [], Object.create({ days: 9 })]) {
    assert.equal(policy.draw("a", attributes), policy.notEnrolled);
  }
});

test("attributes of any type give a segment without an error", () => {
  const { text } = cases.policies.find(({ about }) => about === "segments between cuts");
  const policy = PublishedPolicy.fromText(text);
  assert.equal(policy.draw("a", { tenure_days: 29.9 }).segment, "29.9 to 30");
  for (const days of [NaN, Infinity, 9n, "9", [9], { days: 9 }, new Number(9), true, null, undefined, () => 9]) {
    assert.equal(policy.draw("a", { tenure_days: days }).segment, "other");
  }
  for (const attributes of [null, undefined, "days", 9, [], Object.create({ tenure_days: 9 })]) {
    assert.equal(policy.draw("a", attributes).segment, "other");
  }
});

test("fields of a later release are ignored", () => {
  const { sha256, ...document } = JSON.parse(cases.policies[3].text);
  document.signature = "…";
  document.cells[0].since = 3;
  const policy = PublishedPolicy.fromText(cases.policies[3].text);
  assert.deepEqual(PublishedPolicy.fromText(JSON.stringify(document)).cells, policy.cells);
});

test("a policy is immutable and has its baseline", () => {
  const policy = PublishedPolicy.fromText(cases.policies[3].text);
  const bucket = policy.draw("a");
  assert.throws(() => {
    policy.version = 2;
  }, TypeError);
  assert.throws(() => {
    bucket.values.weight = 2;
  }, TypeError);
  assert.deepEqual(policy.baseline, policy.named("c4"));
  assert.equal(policy.baseline.propensity, 0);
  assert.equal(policy.named("constructor"), undefined);
});

test("a parameter may have any name", () => {
  const { sha256, ...document } = JSON.parse(cases.policies[0].text);
  const text = JSON.stringify(document).replace('"weight"', '"__proto__"');
  const { values } = PublishedPolicy.fromText(text).draw("a");
  assert.deepEqual(Object.keys(values), ["__proto__"]);
  assert.equal(Object.getPrototypeOf(values), Object.prototype);
});
