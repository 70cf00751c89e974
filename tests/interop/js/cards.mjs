// What the official SDK's verifier makes of cards:
//   node cards.mjs vectors FILE          compares its canonical form with the "compact" of each of FILE
//   node cards.mjs verify CARD KEYS      verifies a card, a URL or a file, with the JWK set at KEYS
//   node cards.mjs resolve BASE KEYS     the same of the card that the SDK's resolver fetches below BASE
//   node cards.mjs sign CARD             signs a card with a key of its own: {"card": …, "jwks": …}
import { readFile } from "node:fs/promises";
import { canonicalizeAgentCard, generateAgentCardSignature, verifyAgentCardSignature } from "@a2a-js/sdk";
import { DefaultAgentCardResolver } from "@a2a-js/sdk/client";
import * as jose from "jose";

console.debug = () => {};

async function read(from) {
  if (!/^https?:/.test(from)) return JSON.parse(await readFile(from, "utf8"));
  const response = await fetch(from, { headers: { "A2A-Version": "1.0" } });
  if (!response.ok) throw new Error(`${from}: HTTP ${response.status}`);
  return response.json();
}

async function vectors(file) {
  const list = await read(file);
  const wrong = list.filter((v) => canonicalizeAgentCard(v.card) !== v.compact);
  for (const v of wrong.slice(0, 5)) console.log(`here  ${v.compact}\nthere ${canonicalizeAgentCard(v.card)}`);
  console.log(`${list.length - wrong.length} of ${list.length} alike`);
  return wrong.length === 0;
}

const verify = (from, keysFrom) => verified(() => read(from), keysFrom);
const resolve = (base, keysFrom) =>
  verified(() => new DefaultAgentCardResolver().resolve(`${base}/.well-known/agent-card.json`, ""), keysFrom);

async function verified(card, keysFrom) {
  const { keys } = await read(keysFrom);
  const asked = [];
  const verifier = verifyAgentCardSignature(async (kid, jku) => {
    asked.push(`${kid} ${jku}`);
    const key = keys.find((k) => k.kid === kid);
    if (!key) throw new Error(`no key ${kid}`);
    return jose.importJWK(key);
  });
  try {
    await verifier(await card());
    console.log(`verified ${asked.at(-1)}`);
    return true;
  } catch (err) {
    console.log(`refused: ${err.message}`);
    return false;
  }
}

async function sign(from) {
  const { publicKey, privateKey } = await jose.generateKeyPair("ES256");
  const card = await read(from);
  delete card.signatures;
  const signed = await generateAgentCardSignature(privateKey, { alg: "ES256", kid: "js", typ: "JOSE" })(card);
  const key = { ...(await jose.exportJWK(publicKey)), kid: "js", alg: "ES256" };
  console.log(JSON.stringify({ card: signed, jwks: { keys: [key] } }));
  return true;
}

const [command, ...args] = process.argv.slice(2);
const ok = await { vectors, verify, resolve, sign }[command](...args);
process.exit(ok ? 0 : 1);
