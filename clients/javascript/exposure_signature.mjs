// Signature of an exposure: HMAC-SHA256 (RFC 2104), the same text, key and digest in every language.

import { formatHex, sha256 } from "./sha256.mjs";

const BLOCK_BYTES = 64;
const encoder = new TextEncoder();

/** Return the HMAC-SHA256 of study, version, unit, candidate and any segment with 0x00 between them, in hexadecimal. */
export function signExposure(key, study, { version, unit, candidate, segment }) {
  const texts = [study, version, unit, candidate, ...(segment === undefined ? [] : [segment])];
  return hmacSha256(encoder.encode(key), encoder.encode(texts.join("\0")));
}

/** Return the HMAC-SHA256 of bytes in hexadecimal. */
export function hmacSha256(key, message) {
  const padded = new Uint8Array(BLOCK_BYTES);
  padded.set(key.length > BLOCK_BYTES ? toBytes(sha256(key)) : key);
  const inner = sha256(padded.map((byte) => byte ^ 0x36), message);
  return formatHex(sha256(padded.map((byte) => byte ^ 0x5c), toBytes(inner)));
}

/** Return words of 32 bits as bytes, the highest byte first. */
function toBytes(words) {
  const view = new DataView(new ArrayBuffer(words.length * 4));
  words.forEach((word, place) => view.setUint32(place * 4, word));
  return new Uint8Array(view.buffer);
}
