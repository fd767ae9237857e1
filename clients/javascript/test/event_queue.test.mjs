import assert from "node:assert/strict";
import test from "node:test";

import { EventQueue } from "../event_queue.mjs";

test("items leave a queue in the order they came, through puts back and compaction", () => {
  const queue = new EventQueue();
  const plain = [];
  let next = 0;
  for (let turn = 0; turn < 400; turn += 1) {
    for (let count = 0; count < 1 + ((turn * 7) % 40); count += 1) {
      queue.push(next);
      plain.push(next);
      next += 1;
    }
    const taken = queue.take((turn * 11) % 35);
    assert.deepEqual(taken, plain.splice(0, (turn * 11) % 35));
    if (turn % 5 === 0) {
      queue.putBack(taken);
      plain.unshift(...taken);
    }
    assert.equal(queue.length, plain.length);
  }
  assert.deepEqual(queue.take(Infinity), plain);
  assert.equal(queue.length, 0);
});
