import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";

import { formatHex, sha256 } from "../sha256.mjs";

test("the hash is the standard's for every length around its blocks", () => {
  for (let length = 0; length <= 300; length += 1) {
    const bytes = Uint8Array.from({ length }, (_, index) => (index * 37 + length) % 256);
    assert.equal(formatHex(sha256(bytes)), createHash("sha256").update(bytes).digest("hex"), `${length} bytes`);
  }
});

test("a long text is hashed too", () => {
  const bytes = new Uint8Array(1_000_003).fill(7);
  assert.equal(formatHex(sha256(bytes)), createHash("sha256").update(bytes).digest("hex"));
});
