// What the worker remembers of its own answers, so that `previous_response_id` can continue them.

/** The tokens of answered conversations by the answer's id; the oldest answers are forgotten first. */
export class ResponseStore {
  readonly #maxResponses: number;
  readonly #maxTokens: number;
  readonly #conversations = new Map<string, Int32Array>();
  #tokens = 0;

  /** At most `maxResponses` answers of `maxTokens` tokens together; a token takes 4 bytes. */
  constructor(maxResponses = 1000, maxTokens = 16 * 1024 * 1024) {
    this.#maxResponses = maxResponses;
    this.#maxTokens = maxTokens;
  }

  /** The conversation up to and with that answer. */
  get(id: string): Int32Array | undefined {
    return this.#conversations.get(id);
  }

  /** Remembers a conversation under the id of its latest answer, which must be new. */
  add(id: string, conversation: readonly number[]): void {
    this.#conversations.set(id, Int32Array.from(conversation));
    this.#tokens += conversation.length;
    for (const [oldest, { length }] of this.#conversations) {
      if (this.#conversations.size <= this.#maxResponses && this.#tokens <= this.#maxTokens) return;
      this.#conversations.delete(oldest);
      this.#tokens -= length;
    }
  }
}
