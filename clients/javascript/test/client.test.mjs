import assert from "node:assert/strict";
import test from "node:test";

import { Client, PublishedPolicy } from "../index.mjs";
import { Clock, KEY, Service, countedFetch, documentOf, plainDocumentOf } from "./fixtures/service.mjs";

/** Run a test with a service and a client of it, and close both afterwards. */
function withClient(about, options, body) {
  test(about, async () => {
    const service = await new Service().open();
    const clock = new Clock();
    const usual = { url: service.url, study: "feed", apiKey: KEY, fetch: countedFetch, clock, random: () => 0.5 };
    const client = new Client({ ...usual, ...options });
    try {
      await body({ service, clock, client });
    } finally {
      service.fault = null;
      const closing = client.close();
      await clock.pass(10);
      await closing;
      await service.close().catch(() => {});
    }
  });
}

/** Wait for a promise while the client's time passes. */
async function during(clock, promise, seconds = 5) {
  const [result] = await Promise.all([promise, clock.pass(seconds)]);
  return result;
}

withClient("decides by the policy of the service, and the counts agree", {}, async ({ service, clock, client }) => {
  assert.equal(await client.start(), true);
  assert.equal(await client.waitUntilReady(), true);
  const policy = PublishedPolicy.fromText(service.text);
  const served = {};
  for (let number = 0; number < 200; number += 1) {
    const decision = client.assign(`user-${number}`);
    const cell = policy.draw(`user-${number}`);
    assert.equal(decision.reason, "SPLIT");
    assert.equal(decision.version, 1);
    for (const field of ["name", "candidate", "arm", "propensity"]) assert.equal(decision[field], cell[field]);
    assert.deepEqual(decision.values, cell.values);
    served[cell.name] = (served[cell.name] ?? 0) + 1;
  }
  assert.equal(client.assign("user-7"), client.assign("user-7"));
  client.assign("user-3").track("watch", { seconds: 31.2, full: true });
  client.track("user-4", "like");
  client.track("stranger", "like", { weight: 2 });
  assert.equal(await during(clock, client.flush()), true);

  const exposures = service.eventsOfType("exposure");
  assert.deepEqual(
    exposures.map(({ unit, candidate, version }) => [unit, candidate, version]),
    Array.from({ length: 200 }, (_, number) => [`user-${number}`, policy.draw(`user-${number}`).name, 1]),
  );
  const metrics = service.eventsOfType("metric");
  assert.deepEqual(
    metrics.map(({ unit, name, fields, version, candidate }) => [unit, name, fields, version, candidate]),
    [
      ["user-3", "watch", { seconds: 31.2, full: true }, 1, policy.draw("user-3").name],
      ["user-4", "like", undefined, 1, policy.draw("user-4").name],
      ["stranger", "like", { weight: 2 }, undefined, undefined],
    ],
  );
  const all = [...service.events.values()];
  assert.deepEqual(all.map(({ sequence }) => sequence), Array.from(all, (_, place) => place + 1));
  assert.equal(new Set(all.map(({ source }) => source)).size, 1);
  assert.ok(all.every((event) => !("propensity" in event) && !("arm" in event)));
  assert.deepEqual(service.tallies.at(-1).assigned, served);
  assert.equal(service.tallies.at(-1).version, 1);
  for (const line of Object.values(client.status().accounts[1])) {
    assert.equal(line.assigned, line.logged);
    assert.equal(line.pending, 0);
  }
  assert.equal(client.status().buffered, 0);
});

withClient("sends the checksum of its policy, and takes the next version", {}, async ({ service, clock, client }) => {
  await client.start();
  assert.equal(service.polls[0].url, "/v1/studies/feed/policy");
  await clock.pass(60);
  assert.ok(service.polls.length >= 3);
  assert.equal(service.polls[1].url, "/v1/studies/feed/policy?wait=20");
  assert.equal(service.polls[1].headers["if-none-match"], `"${PublishedPolicy.fromText(service.text).checksum}"`);
  const first = client.assign("user-1");
  service.text = documentOf(2);
  await clock.pass(25);
  const second = client.assign("user-1");
  assert.deepEqual([first.version, second.version], [1, 2]);
  await during(clock, client.flush());
  assert.deepEqual(service.eventsOfType("exposure").map(({ version }) => version), [1, 2]);
  assert.deepEqual(service.tallies.map(({ version }) => version).sort(), [1, 2]);
});

withClient("a confirmation keeps the policy from expiring", {}, async ({ clock, client }) => {
  await client.start();
  await clock.pass(2000);
  assert.equal(client.assign("user-1").reason, "SPLIT");
  assert.ok(client.status().age < 60);
});

withClient("an outage: the policy stays, becomes stale, and returns", {}, async ({ service, clock, client }) => {
  await client.start();
  const before = client.assign("user-1");
  await service.close();
  await clock.pass(500);
  assert.equal(client.assign("user-1"), before);
  assert.equal(client.assign("user-2").reason, "SPLIT");
  assert.ok(client.status().errors > 0);
  await clock.pass(200);
  const stale = client.assign("user-1");
  assert.deepEqual([stale.reason, stale.name, stale.arm, stale.propensity], ["STALE", "a", "none", 0]);
  assert.equal(client.status().reason, "STALE");
  stale.track("like");
  assert.equal(service.events.size, 0);
  assert.equal(client.status().buffered, 4);

  await service.open();
  await clock.pass(31);
  assert.equal(client.assign("user-3").reason, "SPLIT");
  await clock.pass(31);
  const [one, two, fallback, last] = service.eventsOfType("exposure");
  assert.deepEqual([one.unit, two.unit, last.unit], ["user-1", "user-2", "user-3"]);
  assert.deepEqual([fallback.unit, fallback.fallback, fallback.candidate], ["user-1", true, "a"]);
  const [metric] = service.eventsOfType("metric");
  assert.deepEqual([metric.version, metric.candidate], [0, undefined]);
  assert.equal(client.status().buffered, 0);
});

const older = documentOf(1, { valid_from: 900 });
const faults = {
  401: (response) => response.writeHead(401).end(),
  403: (response) => response.writeHead(403).end('{"error": {"code": "forbidden", "message": ""}}'),
  404: (response) => response.writeHead(404).end(),
  410: (response) => response.writeHead(410).end(),
  429: (response) => response.writeHead(429, { "Retry-After": "20" }).end(),
  500: (response) => response.writeHead(500).end(),
  503: (response) => response.writeHead(503, { "Retry-After": "garbage" }).end(),
  "a page instead of a policy": (response) => response.writeHead(200).end("<html>hello</html>"),
  "nothing": (response) => response.writeHead(200).end(),
  "an empty object": (response) => response.writeHead(200).end("{}"),
  "half a policy": (response) => response.writeHead(200).end(documentOf(3).slice(0, 200)),
  "a policy that is not the one of its tag": (response) =>
    response.writeHead(200, { ETag: `"${"0".repeat(64)}"` }).end(documentOf(3)),
  "a policy without any checksum": (response) => response.writeHead(200).end(plainDocumentOf(3)),
  "a policy whose version was changed on the way": (response) =>
    response.writeHead(200).end(documentOf(3).replace('"version":3', '"version":999')),
  "another study's policy": (response) => response.writeHead(200).end(documentOf(3, { study: "search" })),
  "an older policy": (response) => response.writeHead(200).end(older),
  "a redirect": (response) => response.writeHead(302, { Location: "/elsewhere" }).end(),
  "a broken line": (response) => response.destroy(),
  "a body that breaks off": (response) => {
    response.writeHead(200, { "Content-Length": "5000" }).write("{");
    setTimeout(() => response.destroy(), 3);
  },
};

for (const [name, fault] of Object.entries(faults)) {
  withClient(`${name}: the last good policy stays, and the client asks again`, {}, async ({ service, clock, client }) => {
    service.text = documentOf(2);
    await client.start();
    const held = client.assign("user-1");
    service.fault = (request, response) => (fault(response), true);
    await clock.pass(120);
    assert.equal(client.assign("user-1"), held);
    assert.equal(client.assign("user-2").reason, "SPLIT");
    assert.equal(client.status().version, 2);
    assert.ok(client.status().errors > 0);
    assert.equal(service.polls.some(({ url }) => url === "/elsewhere"), false);
    assert.ok(service.polls.length >= 4 && service.polls.length <= 40, `${service.polls.length} polls`);
    service.fault = null;
    service.text = documentOf(3);
    await clock.pass(65);
    assert.equal(client.status().buffered, 0);
    assert.equal(client.assign("user-1").version, 3);
  });
}

withClient("a study that has ended serves the baseline", {}, async ({ service, clock, client }) => {
  service.text = documentOf(2);
  await client.start();
  assert.equal(client.assign("user-1").reason, "SPLIT");
  const body = '{"error": {"code": "wrong_state", "message": "it is archived"}}';
  service.fault = (request, response) => (response.writeHead(409).end(body), true);
  await clock.pass(60);
  assert.equal(client.assign("user-1").reason, "STALE");
  service.fault = null;
  await clock.pass(65);
  assert.equal(client.assign("user-1").reason, "SPLIT");
});

withClient("the error of a draft names the draft", {}, async ({ service, clock, client }) => {
  const body = `{"error": {"code": "wrong_state", "message": "study 'feed' is a draft"}}`;
  service.fault = (request, response) => (response.writeHead(409).end(body), true);
  await Promise.all([client.start(), clock.pass(20)]);
  assert.match(client.status().lastError, /study 'feed' is a draft; every unit gets the baseline/);
  client.assign("user-1");
  await Promise.all([client.flush(), clock.pass(20)]);
  assert.match(client.status().lastError, /does not account for the batch: study 'feed' is a draft/);
});

withClient("a study that is created again under its name is taken", {}, async ({ service, clock, client }) => {
  service.text = documentOf(9);
  await client.start();
  service.text = documentOf(1, { valid_from: 5000 });
  await clock.pass(60);
  assert.equal(client.assign("user-1").version, 1);
});

withClient("without a policy the given baseline is served", { baseline: { weight: 7 } }, async ({ service, clock, client }) => {
  service.fault = (request, response) => (response.writeHead(503).end(), true);
  assert.equal(await during(clock, client.start()), false);
  assert.equal(await during(clock, client.waitUntilReady(2)), false);
  const decision = client.assign("user-1");
  assert.deepEqual(decision.values, { weight: 7 });
  assert.deepEqual(
    [decision.reason, decision.version, decision.name, decision.candidate, decision.propensity],
    ["DEFAULT", 0, "baseline", null, 0],
  );
  service.fault = null;
  await clock.pass(60);
  assert.equal(client.assign("user-1").reason, "SPLIT");
  await clock.pass(10);
  assert.deepEqual(
    service.eventsOfType("exposure").map(({ version, fallback }) => [version, fallback]),
    [
      [0, true],
      [1, undefined],
    ],
  );
});

withClient("never throws to the caller", {}, async ({ clock, client }) => {
  const odd = [undefined, null, "", "x".repeat(257), "\ud800", {}, [], Symbol("s"), NaN, 1.5, () => 1];
  for (const hasPolicy of [false, true]) {
    if (hasPolicy) await client.start();
    for (const unit of odd) {
      const decision = client.assign(unit);
      assert.equal(decision.reason, "DEFAULT");
      assert.deepEqual(decision.values, hasPolicy ? { weight: 1 } : {});
      decision.track("like");
      client.track(unit, "like");
    }
  }
  assert.equal(client.assign(12), client.assign("12"));
  assert.equal(client.assign(12n).unit, "12");
  for (const event of [undefined, "", 7, {}]) client.track("user-1", event);
  for (const value of [NaN, Infinity, 1e16, null, {}, [1], 1n]) client.track("user-1", "watch", { seconds: value });
  client.track("user-1", "watch", null);
  client.track("user-1", "watch", { seconds: undefined });
  assert.equal(client.assign("user-1", null).reason, "SPLIT");
  assert.equal(await during(clock, client.flush()), true);
  const { rejected } = client.status();
  assert.equal(Object.values(rejected).reduce((sum, count) => sum + count, 0), 44 + 4 + 7);
});

withClient("an exception of onError is ignored", { onError: () => assert.fail("loud") }, async ({ client }) => {
  assert.equal(client.assign(null).reason, "DEFAULT");
  client.track(null, "like");
});

withClient("an override is served and marked", {}, async ({ service, clock, client }) => {
  await client.start();
  const preview = client.assign("user-1", { override: "b" });
  assert.deepEqual([preview.name, preview.reason, preview.arm, preview.propensity], ["b", "OVERRIDE", "none", 0]);
  preview.track("like");
  assert.equal(client.assign("user-2", { override: "z" }).reason, "DEFAULT");
  await during(clock, client.flush());
  assert.deepEqual(
    service.eventsOfType("exposure").map(({ candidate, override, fallback }) => [candidate, override, fallback]),
    [
      ["b", true, undefined],
      ["a", undefined, true],
    ],
  );
  assert.equal(service.eventsOfType("metric")[0].version, 0);
});

withClient("events whose answer was lost are sent again and stored once", {}, async ({ service, clock, client }) => {
  await client.start();
  for (let number = 0; number < 50; number += 1) client.assign(`user-${number}`);
  service.fault = (request, response, body) => {
    if (request.method === "GET") return false;
    service.take(JSON.parse(body), null);
    response.destroy();
    return true;
  };
  assert.equal(await during(clock, client.flush(), 0), false);
  client.assign("one more");
  service.fault = null;
  await clock.pass(10);
  assert.equal(service.posts[0].body, service.posts[1].body);
  assert.equal(service.events.size, 51);
  assert.equal(client.status().buffered, 0);
});

const miscounts = [
  { accepted: 0, duplicates: 0, rejected: [] },
  { accepted: 1_000_000, duplicates: 0, rejected: [] },
  { accepted: -5, duplicates: 56, rejected: [] },
  { accepted: 51, rejected: [] },
  { accepted: 0, duplicates: 0, rejected: [{ index: 0, reason: "no" }] },
  { accepted: 50, duplicates: 0, rejected: [{ index: 99, reason: "no" }] },
  { accepted: 49, duplicates: 0, rejected: [{ index: 0, reason: "no" }, { index: 0, reason: "no" }] },
];

for (const answer of miscounts) {
  const about = `an answer that does not account for every event settles none: ${JSON.stringify(answer)}`;
  withClient(about, {}, async ({ service, clock, client }) => {
    await client.start();
    for (let number = 0; number < 50; number += 1) client.assign(`user-${number}`);
    service.fault = (request, response) =>
      request.method === "POST" && (response.writeHead(200).end(JSON.stringify(answer)), true);
    assert.equal(await during(clock, client.flush(), 0), false);
    await clock.pass(30);
    assert.ok(service.posts.length <= 15, `${service.posts.length} posts`);
    assert.equal(client.status().buffered, 50);
    assert.deepEqual(client.status().rejected, {});
    assert.match(client.status().lastError, /does not account for the batch/);
    service.fault = null;
    await clock.pass(35);
    assert.equal(service.eventsOfType("exposure").length, 50);
    assert.equal(client.status().dropped, 0);
  });
}

// The service closes every connection at its second request, without an answer, as after an idle timeout.
withClient("a kept-alive connection that the service closed is replaced without an error", {}, async ({ service, clock, client }) => {
  service.fault = (request) => {
    request.socket.requests = (request.socket.requests ?? 0) + 1;
    if (request.socket.requests % 2 === 1) return false;
    request.socket.destroy();
    return true;
  };
  assert.equal(await client.start(), true);
  for (let number = 0; number < 6; number += 1) {
    client.assign(`user-${number}`);
    assert.equal(await during(clock, client.flush()), true);
  }
  assert.ok(service.posts.length > 6, "some request met a closed connection");
  assert.equal(service.eventsOfType("exposure").length, 6);
  assert.deepEqual([client.status().errors, client.status().lastError], [0, null]);
});

withClient("a synchronous loop over 45,000 users loses nothing", {}, async ({ service, clock, client }) => {
  await client.start();
  for (let number = 0; number < 45_000; number += 1) client.assign(`user-${number}`).track("like");
  assert.deepEqual([client.status().dropped, client.status().droppedMetrics], [0, 0]);
  assert.equal(await during(clock, client.flush()), true);
  assert.equal(service.events.size, 90_000);
});

withClient("a full buffer drops the oldest events and counts them", { maxBufferedEvents: 10 }, async ({ service, clock, client }) => {
  await client.start();
  service.fault = (request, response) => (response.writeHead(503).end(), true);
  for (let number = 0; number < 25; number += 1) client.assign(`user-${number}`);
  client.assign("user-24").track("like");
  assert.equal(client.status().buffered, 10);
  assert.equal(client.status().dropped, 16);
  const again = client.assign("user-0");
  assert.equal(again.reason, "SPLIT");
  service.fault = null;
  assert.equal(await during(clock, client.flush()), true);
  assert.equal(service.eventsOfType("exposure").at(-1).unit, "user-0");
  const lines = Object.values(client.status().accounts[1]);
  const sum = (field) => lines.reduce((total, line) => total + line[field], 0);
  assert.deepEqual([sum("assigned"), sum("logged"), sum("dropped"), sum("pending")], [26, 9, 17, 0]);
  const counts = service.tallies.at(-1);
  assert.equal(Object.values(counts.dropped).reduce((total, count) => total + count, 0), 17);
});

withClient("events that the service rejects are counted and dropped", {}, async ({ service, clock, client }) => {
  service.reject = (event) => (event.unit === "user-3" || event.type === "exposure_counts" ? "no such thing" : null);
  await client.start();
  for (let number = 0; number < 10; number += 1) client.assign(`user-${number}`);
  await during(clock, client.flush());
  assert.equal(service.events.size, 9);
  assert.equal(client.status().buffered, 0);
  assert.equal(client.status().dropped, 1);
  service.reject = () => "closed";
  client.assign("user-11");
  await during(clock, client.flush());
  assert.deepEqual([client.status().buffered, client.status().dropped], [0, 2]);
});

for (const [status, body] of [
  [413, ""],
  [400, '{"error": {"code": "bad_request", "message": "no"}}'],
]) {
  withClient(`${status}: the batch is halved until the bad event is alone`, {}, async ({ service, clock, client }) => {
    service.fault = (request, response, text) => {
      if (request.method === "GET" || !text.includes("culprit")) return false;
      response.writeHead(status).end(body);
      return true;
    };
    await client.start();
    for (let number = 0; number < 30; number += 1) client.assign(number === 11 ? "culprit" : `user-${number}`);
    assert.equal(await during(clock, client.flush()), true);
    assert.equal(service.events.size, 29);
    assert.deepEqual([client.status().buffered, client.status().dropped], [0, 1]);
    assert.equal(Object.values(service.tallies.at(-1).assigned).reduce((sum, count) => sum + count, 0), 30);
  });
}

withClient("answers that do not account for the batch settle nothing", {}, async ({ service, clock, client }) => {
  await client.start();
  const answers = [
    [200, ""],
    [200, "<html>"],
    [200, "{}"],
    [200, '{"accepted": 1, "rejected": [null]}'],
    [400, "<html>"],
    [401, ""],
    [422, "{}"],
    [503, ""],
  ];
  client.assign("user-1");
  for (const [status, body] of answers) {
    service.fault = (request, response) => request.method === "POST" && (response.writeHead(status).end(body), true);
    await clock.pass(31);
    assert.deepEqual([client.status().buffered, client.status().dropped], [1, 0], `${status} ${body}`);
  }
  service.fault = null;
  await clock.pass(31);
  assert.equal(service.events.size, 1);
});

withClient("a failing service is never asked more than once a second", {}, async ({ service, clock, client }) => {
  service.fault = (request, response) => (response.writeHead(500).end(), true);
  await during(clock, client.start());
  client.assign("user-1");
  const before = [service.polls.length, service.posts.length];
  await clock.pass(300);
  const polls = service.polls.length - before[0];
  const posts = service.posts.length - before[1];
  assert.ok(polls >= 300 / 30 && polls <= 30, `${polls} polls`);
  assert.ok(posts >= 300 / 30 && posts <= 30, `${posts} posts`);
});

withClient("full batches do not wait for the flush interval", { flushInterval: 1000 }, async ({ service, client, clock }) => {
  await client.start();
  for (let number = 0; number < 2500; number += 1) client.assign(`user-${number}`);
  await clock.pass(1);
  assert.equal(service.events.size, 2500);
  assert.ok(service.posts.length <= 5);
});

withClient("a closed client serves the baseline and sends nothing", {}, async ({ service, clock, client }) => {
  await client.start();
  client.assign("user-1");
  assert.equal(await during(clock, client.close()), true);
  assert.equal(service.events.size, 1);
  const [polls, posts] = [service.polls.length, service.posts.length];
  const decision = client.assign("user-2");
  assert.deepEqual([decision.reason, decision.name], ["DEFAULT", "a"]);
  decision.track("like");
  await clock.pass(100);
  assert.deepEqual([service.polls.length, service.posts.length], [polls, posts]);
  assert.equal(await client.close(), true);
  assert.equal(await client.waitUntilReady(0), false);
});

test("each client has its own source, and no id is used twice", async () => {
  const service = await new Service().open();
  const clients = Array.from({ length: 8 }, () => new Client({ url: service.url, study: "feed", apiKey: KEY }));
  await Promise.all(clients.map((client) => client.start()));
  for (const client of clients) for (let number = 0; number < 100; number += 1) client.assign(`user-${number}`);
  assert.deepEqual(await Promise.all(clients.map((client) => client.close())), Array(8).fill(true));
  assert.equal(service.events.size, 800);
  assert.equal(new Set([...service.events.values()].map(({ source }) => source)).size, 8);
  await service.close();
});

test("without Web Crypto sources are still unique", async () => {
  const descriptor = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  Object.defineProperty(globalThis, "crypto", { value: undefined, configurable: true });
  try {
    const { EventBuffer } = await import("../event_buffer.mjs");
    const sources = Array.from({ length: 1000 }, () => new EventBuffer(1, () => {}).source);
    assert.equal(new Set(sources).size, 1000);
    assert.ok(sources.every((source) => /^[0-9a-f]{32}$/.test(source)));
  } finally {
    if (descriptor !== undefined) Object.defineProperty(globalThis, "crypto", descriptor);
    else delete globalThis.crypto;
  }
});

test("options that are not valid throw when the client is made", () => {
  assert.throws(() => new Client({ url: "nowhere", study: "feed" }), TypeError);
  assert.throws(() => new Client({ url: "ftp://example.com", study: "feed" }), TypeError);
  assert.throws(() => new Client({ url: "http://127.0.0.1" }), TypeError);
  assert.throws(() => new Client({ url: "http://127.0.0.1", study: "feed", maxBufferedEvents: 0 }), TypeError);
  assert.throws(() => new Client({ url: "http://127.0.0.1", study: "feed", refresh: 5 }), /now called pollInterval/);
  assert.throws(() => new Client({ url: "http://127.0.0.1", study: "feed", pollInterval: "20" }), TypeError);
});

const RAMP = { format: 2, enrolment: [{ kind: "ramp", salt: "ramp:feed", from: 0, until: 2 ** 51 }] };
const AUDIENCE = {
  format: 2,
  audience: [
    { attribute: "country", operator: "in", values: ["de", "at"] },
    { attribute: "days", operator: ">=", values: [7] },
  ],
};

withClient("a unit outside the enrolment leaves no trace", {}, async ({ service, clock, client }) => {
  service.text = documentOf(1, RAMP);
  await client.start();
  const decisions = Array.from({ length: 400 }, (_, number) => client.assign(`user-${number}`));
  const outside = decisions.filter(({ arm }) => arm === "not_enrolled");
  assert.ok(outside.length > 250 && outside.length < 350);
  for (const { name, reason, propensity } of outside) assert.deepEqual([name, reason, propensity], ["a", "DEFAULT", 0]);
  for (const decision of decisions) {
    decision.track("like");
    client.track(decision.unit, "watch", { seconds: 1 });
  }
  assert.equal(await during(clock, client.flush()), true);
  const inside = decisions.filter(({ reason }) => reason === "SPLIT").map(({ unit }) => unit);
  assert.equal(inside.length + outside.length, 400);
  assert.deepEqual(service.eventsOfType("exposure").map(({ unit }) => unit), inside);
  assert.equal(service.eventsOfType("metric").length, 2 * inside.length);
  const { notEnrolled, notEnrolledEvents, errors } = client.status();
  assert.deepEqual([notEnrolled, notEnrolledEvents, errors], [outside.length, 2 * outside.length, 0]);
});

withClient("attributes decide at every call", {}, async ({ service, clock, client }) => {
  service.text = documentOf(1, AUDIENCE);
  await client.start();
  const met = { attributes: { country: "de", days: 9 } };
  const first = client.assign("ann", met);
  assert.equal(first.reason, "SPLIT");
  assert.equal(client.assign("ann", met), first);
  for (const attributes of [undefined, null, {}, { country: "de" }, { country: "fr", days: 9 }]) {
    assert.equal(client.assign("ann", { attributes }).arm, "not_enrolled");
  }
  client.track("ann", "like"); // the unit was served the baseline last
  assert.equal(client.assign("ann", met), first);
  client.track("ann", "like");
  assert.equal(client.assign("ann", { override: "b" }).reason, "OVERRIDE");
  await during(clock, client.flush());
  assert.deepEqual(service.eventsOfType("exposure").map(({ unit, override }) => [unit, override]), [
    ["ann", undefined],
    ["ann", true],
  ]);
  assert.equal(service.eventsOfType("metric").length, 1);
  assert.deepEqual([client.status().notEnrolled, client.status().notEnrolledEvents], [5, 1]);
});

withClient("an outage makes no exposures of units outside", {}, async ({ service, clock, client }) => {
  service.text = documentOf(1, RAMP);
  await client.start();
  await service.close();
  await clock.pass(700);
  const reasons = Array.from({ length: 100 }, (_, number) => client.assign(`user-${number}`).reason);
  assert.deepEqual(new Set(reasons), new Set(["STALE", "DEFAULT"]));
  assert.equal(client.status().buffered, reasons.filter((reason) => reason === "STALE").length);
  await service.open();
});

const SEGMENTS = {
  format: 2,
  segments: {
    attributes: [{ attribute: "activity", values: ["new", "heavy"] }],
    distributions: [
      { name: "new", cells: [{ arm: "learner", candidate: 1, until: 2 ** 53 }] },
      { name: "heavy", cells: [{ arm: "learner", candidate: 1, until: 2 ** 53 }] },
    ],
  },
};

withClient("the segment travels with the events", {}, async ({ service, clock, client }) => {
  service.text = documentOf(1, SEGMENTS);
  await client.start();
  const inSegment = (activity) => ({ attributes: { activity } });
  const first = client.assign("ann", inSegment("new"));
  assert.deepEqual([first.name, first.segment, first.propensity], ["b", "new", 1]);
  assert.equal(client.assign("ann", inSegment("new")), first);
  first.track("like");
  const second = client.assign("ann", inSegment("heavy"));
  assert.deepEqual([second.name, second.segment], ["b", "heavy"]);
  client.track("ann", "like");
  assert.equal(client.assign("bob").segment, "other");
  assert.equal(client.assign("cid", { override: "b", ...inSegment("new") }).segment, null);
  await during(clock, client.flush());
  assert.deepEqual(service.eventsOfType("exposure").map(({ unit, segment }) => [unit, segment]), [
    ["ann", "new"],
    ["ann", "heavy"],
    ["bob", "other"],
    ["cid", undefined],
  ]);
  assert.deepEqual(service.eventsOfType("metric").map(({ segment }) => segment), ["new", "heavy"]);
});

withClient("the cluster is drawn, and exposures name it", {}, async ({ service, clock, client }) => {
  service.text = documentOf(1, { format: 2, cluster: "school" });
  await client.start();
  const of = (school) => ({ attributes: { school } });
  const names = new Set(Array.from({ length: 20 }, (_, number) => client.assign(`pupil-${number}`, of("north")).name));
  assert.equal(names.size, 1);
  const first = client.assign("ann", of("north"));
  assert.equal(client.assign("ann", of("north")), first);
  assert.equal(client.assign("ann", of(7)).cluster, "7");
  client.track("ann", "like");
  for (const school of [undefined, null, "", true, 7.5, "\ud800", "x".repeat(257)]) {
    const { arm, reason, cluster } = client.assign("bob", of(school));
    assert.deepEqual([arm, reason, cluster], ["not_enrolled", "DEFAULT", null]);
  }
  await during(clock, client.flush());
  const exposures = service.eventsOfType("exposure").map(({ unit, cluster }) => [unit, cluster]);
  assert.deepEqual(exposures.slice(-2), [
    ["ann", "north"],
    ["ann", "7"],
  ]);
  assert.equal(exposures.length, 22);
  assert.deepEqual(service.eventsOfType("metric").map(({ unit, cluster }) => [unit, cluster]), [["ann", undefined]]);
});
