// Evaluates flags of a running service with the real OpenFeature clients, for Node and for the web, and prints what they
// got as one JSON value: node evaluate.mjs URL KEY UNIT...

import { OpenFeature as Server } from "@openfeature/server-sdk";
import { OFREPProvider } from "@openfeature/ofrep-provider";
import { OpenFeature as Web } from "@openfeature/web-sdk";
import { OFREPWebProvider } from "@openfeature/ofrep-web-provider";

const [url, key, ...units] = process.argv.slice(2);
const headers = key ? [["Authorization", `Bearer ${key}`]] : [];
const told = ({ value, variant, reason, flagMetadata, errorCode }) => ({ value, variant, reason, flagMetadata, errorCode });

await Server.setProviderAndWait(new OFREPProvider({ baseUrl: url, headers }));
const server = Server.getClient();
const node = {};
for (const unit of units) {
  const context = { targetingKey: unit, country: "NL" };
  node[unit] = {
    object: told(await server.getObjectDetails("ranking", {}, context)),
    number: told(await server.getNumberDetails("ranking.weight", -1, context)),
    string: told(await server.getStringDetails("ranking.ranker", "", context)),
    boolean: told(await server.getBooleanDetails("ranking.boost", true, context)),
    missing: told(await server.getStringDetails("nowhere", "default", context)),
    mistyped: told(await server.getNumberDetails("ranking.ranker", 7, context)),
  };
}
const nobody = told(await server.getObjectDetails("ranking", { default: true }, {}));

const web = {};
let refused = null;
await Web.setContext({ targetingKey: units[0] });
try {
  await Web.setProviderAndWait(new OFREPWebProvider({ baseUrl: url, headers, pollInterval: -1 }));
} catch (error) {
  refused = error.code;
}
for (const unit of refused ? [] : units) {
  await Web.setContext({ targetingKey: unit });
  const client = Web.getClient();
  web[unit] = {
    object: told(client.getObjectDetails("ranking", {})),
    number: told(client.getNumberDetails("ranking.weight", -1)),
    missing: told(client.getStringDetails("nowhere", "default")),
  };
}

console.log(JSON.stringify({ node, nobody, web, refused }));
await Server.close();
await Web.close();
