// A first-in, first-out queue. An array's own shift() copies the rest once the array is long: 150 µs at 100,000 items.

/** Dead slots at the front up to which the array is left as it is. */
const MIN_COMPACTED = 1024;

/** Holds items in order; the oldest leaves in constant time on average. */
export class Queue {
  #items = [];
  #head = 0;

  get length() {
    return this.#items.length - this.#head;
  }

  push(item) {
    this.#items.push(item);
  }

  /** Remove the oldest items, at most so many, and return them. */
  take(count) {
    const taken = this.#items.slice(this.#head, this.#head + count);
    this.#items.fill(undefined, this.#head, this.#head + taken.length);
    this.#head += taken.length;
    if (this.#head >= MIN_COMPACTED && 2 * this.#head >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return taken;
  }

  /** Put items back before all others. */
  putBack(items) {
    this.#items = [...items, ...this.#items.slice(this.#head)];
    this.#head = 0;
  }
}
