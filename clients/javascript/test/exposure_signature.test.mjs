import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import test from "node:test";

import { PolicyHolder } from "../policy_holder.mjs";
import { hmacSha256, signExposure } from "../exposure_signature.mjs";

test("the HMAC is the standard's for keys below, at and above a block", () => {
  for (const length of [0, 1, 32, 63, 64, 65, 200]) {
    const key = Uint8Array.from({ length }, (_, index) => (index * 31 + length) % 256);
    const message = new TextEncoder().encode(`message ${length}`);
    assert.equal(hmacSha256(key, message), createHmac("sha256", key).update(message).digest("hex"), `${length} bytes`);
  }
});

test("an exposure is signed over study, version, unit and candidate", () => {
  const signature = signExposure("secret", "feed", { version: 3, unit: "ann", candidate: "a" });
  assert.equal(signature, createHmac("sha256", "secret").update("feed\x003\x00ann\x00a").digest("hex"));
  assert.equal(signature.slice(0, 16), "6c7418ecec390032"); // as the Python SDK signs it
  const divided = signExposure("secret", "feed", { version: 3, unit: "ann", candidate: "a", segment: "new" });
  assert.equal(divided, createHmac("sha256", "secret").update("feed\x003\x00ann\x00a\x00new").digest("hex"));
});

test("only exposures that count are signed, and only with a key", () => {
  const holder = new PolicyHolder("feed", () => 0);
  const exposure = { type: "exposure", version: 3, unit: "ann", candidate: "a" };
  assert.equal(holder.sign(exposure), exposure);
  holder.storeSigningKey("secret");
  holder.storeSigningKey(null);
  assert.equal(holder.sign(exposure).signature.slice(0, 16), "6c7418ecec390032");
  for (const event of [{ ...exposure, fallback: true }, { ...exposure, override: true }, { type: "metric" }]) {
    assert.equal(holder.sign(event), event);
  }
});
