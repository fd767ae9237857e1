// SHA-256 (FIPS 180-4), synchronous as a decision is; the hash of browsers is asynchronous.

const WORD_MASK = 0xffffffffn;

/** Return the integer part of the root of a large integer, by Newton's method from above. */
function integerRoot(value, degree) {
  const power = BigInt(degree);
  let guess = 1n << BigInt(Math.ceil(value.toString(2).length / degree));
  for (;;) {
    const next = ((power - 1n) * guess + value / guess ** (power - 1n)) / power;
    if (next >= guess) return guess;
    guess = next;
  }
}

/** Return the first 32 fractional bits of a prime's root: the constants of the standard (4.2.2, 5.3.3). */
function fractionalBits(prime, degree) {
  return Number(integerRoot(BigInt(prime) << BigInt(32 * degree), degree) & WORD_MASK);
}

const PRIMES = [];
for (let number = 2; PRIMES.length < 64; number += 1) {
  if (PRIMES.every((prime) => number % prime !== 0)) PRIMES.push(number);
}
const INITIAL_STATE = Int32Array.from(PRIMES.slice(0, 8), (prime) => fractionalBits(prime, 2));
const ROUND_CONSTANTS = Int32Array.from(PRIMES, (prime) => fractionalBits(prime, 3));

const BLOCK_BYTES = 64;
// Buffers shared by all calls: a call is synchronous, so no two overlap.
const schedule = new Int32Array(64);
let padded = new Uint8Array(4096);
let view = new DataView(padded.buffer);

/** Return the hash of bytes, given in one or several parts, as eight unsigned words of 32 bits. */
export function sha256(...parts) {
  let length = 0;
  for (const part of parts) length += part.length;
  const end = (Math.floor((length + 8) / BLOCK_BYTES) + 1) * BLOCK_BYTES;
  if (end > padded.length) {
    padded = new Uint8Array(end);
    view = new DataView(padded.buffer);
  }
  let filled = 0;
  for (const part of parts) {
    padded.set(part, filled);
    filled += part.length;
  }
  padded.fill(0, length, end);
  padded[length] = 0x80;
  view.setUint32(end - 8, Math.floor(length / 2 ** 29));
  view.setUint32(end - 4, (length << 3) >>> 0);
  const state = new Int32Array(INITIAL_STATE);
  for (let offset = 0; offset < end; offset += BLOCK_BYTES) hashBlock(state, offset);
  return new Uint32Array(state.buffer);
}

/** Add one block to the state (6.2.2); `| 0` reduces sums to 32 bits. */
function hashBlock(state, offset) {
  const w = schedule;
  for (let t = 0; t < 16; t += 1) w[t] = view.getInt32(offset + 4 * t);
  for (let t = 16; t < 64; t += 1) {
    const x = w[t - 15];
    const y = w[t - 2];
    const sigma0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const sigma1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[t] = (sigma1 + w[t - 7] + sigma0 + w[t - 16]) | 0;
  }
  let a = state[0];
  let b = state[1];
  let c = state[2];
  let d = state[3];
  let e = state[4];
  let f = state[5];
  let g = state[6];
  let h = state[7];
  for (let t = 0; t < 64; t += 1) {
    const sum1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const choice = (e & f) ^ (~e & g);
    const first = (h + sum1 + choice + ROUND_CONSTANTS[t] + w[t]) | 0;
    const sum0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const second = (sum0 + majority) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}

/** Return words of 32 bits in hexadecimal. */
export function formatHex(words) {
  return Array.from(words, (word) => word.toString(16).padStart(8, "0")).join("");
}
