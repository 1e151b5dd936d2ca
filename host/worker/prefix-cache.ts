// The KV cache, seen as blocks of tokens: which prefixes are resident, which are in use, which go next.
//
// A block is known by the hash of all tokens up to its end, so equal hashes mean equal prefixes. Blocks that
// running requests hold are pinned; the others wait in an LRU list and are taken from its old end when room
// is needed. A request frees its blocks tail first, so that a chain loses its end before its beginning.
import { finish, mix } from "./hash.js";

interface Block {
  readonly hash: number;
  holders: number;
  /** Its tokens went through prefill or decode. Until then it takes room, but nobody may count on it. */
  computed: boolean;
}

/** A bounded prefix cache of `capacity` blocks of `blockSize` tokens each. */
export class PrefixCache {
  readonly capacity: number;
  readonly blockSize: number;
  readonly #resident = new Map<number, Block>();
  /** Blocks that nobody holds, least recently freed first. */
  readonly #idle = new Map<number, Block>();

  constructor(capacity: number, blockSize: number) {
    this.capacity = capacity;
    this.blockSize = blockSize;
  }

  /** Blocks resident, in use or not. */
  get residentBlocks(): number {
    return this.#resident.size;
  }

  /** Blocks held by running requests. */
  get usedBlocks(): number {
    return this.#resident.size - this.#idle.size;
  }

  /**
   * Takes the blocks of a prompt for a request that starts to run. At most `floor((prompt - 1) / blockSize)`
   * blocks count as cached, because the last prompt token must be computed to get the first answer token.
   */
  hold(prompt: readonly number[]): Holding {
    const chain = new BlockChain(this.blockSize);
    const hashes: number[] = [];
    for (const token of prompt) {
      const hash = chain.push(token);
      if (hash !== undefined) hashes.push(hash);
    }
    const most = Math.max(0, Math.floor((prompt.length - 1) / this.blockSize));
    const hits = Math.min(this.#leadingComputed(hashes), most);
    return new Holding(this, chain, hashes, hits * this.blockSize);
  }

  /** Pins the block, making room for it if it is not resident; `undefined` where every block is pinned. */
  pin(hash: number): Block | undefined {
    const block = this.#resident.get(hash) ?? this.#allocate(hash);
    if (!block) return undefined;
    this.#idle.delete(hash);
    block.holders++;
    return block;
  }

  /** Lets go of a block that `pin` returned. */
  unpin(block: Block): void {
    block.holders--;
    if (block.holders > 0) return;
    if (block.computed) this.#idle.set(block.hash, block);
    else this.#resident.delete(block.hash);
  }

  #leadingComputed(hashes: readonly number[]): number {
    let count = 0;
    while (count < hashes.length && this.#resident.get(hashes[count])?.computed) count++;
    return count;
  }

  #allocate(hash: number): Block | undefined {
    if (this.#resident.size >= this.capacity) {
      const oldest = this.#idle.keys().next();
      if (oldest.done) return undefined;
      this.#idle.delete(oldest.value);
      this.#resident.delete(oldest.value);
    }
    const block = { hash, holders: 0, computed: false };
    this.#resident.set(hash, block);
    return block;
  }
}

/** The blocks one running request holds. Only full blocks are counted. */
export class Holding {
  /** Prompt tokens that were resident when the request started: whole blocks. */
  readonly cachedTokens: number;
  readonly #cache: PrefixCache;
  readonly #chain: BlockChain;
  readonly #blocks: Block[] = [];
  #prefilled = false;
  #full = false;

  constructor(cache: PrefixCache, chain: BlockChain, hashes: readonly number[], cachedTokens: number) {
    this.#cache = cache;
    this.#chain = chain;
    this.cachedTokens = cachedTokens;
    for (const hash of hashes) this.#extend(hash);
  }

  /** The prompt is computed: from now on others may hit its blocks. */
  prefilled(): void {
    this.#prefilled = true;
    for (const block of this.#blocks) block.computed = true;
  }

  /** Adds a generated token; it is cached as soon as it fills a block. */
  append(token: number): void {
    const hash = this.#chain.push(token);
    if (hash !== undefined) this.#extend(hash);
  }

  /** Frees everything, the chain's tail first. Blocks whose prefill was cut short are forgotten. */
  release(): void {
    for (let block = this.#blocks.pop(); block; block = this.#blocks.pop()) this.#cache.unpin(block);
  }

  // A full cache makes no request wait or fail: the request runs on and the rest of its chain is not cached
  // (a block behind a gap could never be hit). A real engine would preempt; a deadlock is impossible here.
  #extend(hash: number): void {
    const block = this.#full ? undefined : this.#cache.pin(hash);
    if (!block) {
      this.#full = true;
      return;
    }
    if (this.#prefilled) block.computed = true;
    this.#blocks.push(block);
  }
}

/** Turns a stream of tokens into block hashes, each covering every token so far. */
class BlockChain {
  readonly #size: number;
  #low = 1;
  #high = 2;
  #filled = 0;

  constructor(size: number) {
    this.#size = size;
  }

  /** The hash of the block this token completes (53 bits), `undefined` while it is not full. */
  push(token: number): number | undefined {
    this.#low = mix(this.#low, token);
    this.#high = mix(this.#high, Math.imul(token, 0x9e3779b1));
    this.#filled++;
    if (this.#filled < this.#size) return undefined;
    this.#filled = 0;
    return finish(this.#high) * 0x200000 + (finish(this.#low) >>> 11);
  }
}
