// First-in, first-out queue. Array.shift() copies the rest of a long array: 150 µs at 100,000 items.

/** Empty slots at the front up to which the array is not copied. */
const MIN_COMPACTED_SLOTS = 1024;

/** Queue of items in order; the oldest is removed in constant time on average. */
export class EventQueue {
  #items = [];
  #head = 0;

  get length() {
    return this.#items.length - this.#head;
  }

  push(item) {
    this.#items.push(item);
  }

  /** Remove and return the oldest items, at most `count`. */
  take(count) {
    const taken = this.#items.slice(this.#head, this.#head + count);
    this.#items.fill(undefined, this.#head, this.#head + taken.length);
    this.#head += taken.length;
    if (this.#head >= MIN_COMPACTED_SLOTS && 2 * this.#head >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return taken;
  }

  /** Put items back at the front. */
  putBack(items) {
    this.#items = [...items, ...this.#items.slice(this.#head)];
    this.#head = 0;
  }
}
