// What the store keeps and what it forgets.
import { describe, expect, it } from "vitest";
import { ResponseStore } from "../../host/worker/response-store.js";

function kept(store: ResponseStore, ids: readonly string[]): string[] {
  return ids.filter((id) => store.get(id) !== undefined);
}

describe("ResponseStore", () => {
  it("gives back the tokens under their id, negative ones too", () => {
    const store = new ResponseStore();
    store.add("a", [1, -2, 0x7fffffff, -0x80000000]);
    expect([...store.get("a")!]).toEqual([1, -2, 0x7fffffff, -0x80000000]);
    expect(store.get("b")).toBeUndefined();
  });

  it("keeps the 1,000 latest", () => {
    const store = new ResponseStore();
    const ids = Array.from({ length: 1002 }, (_, i) => `${i}`);
    for (const id of ids) store.add(id, [1]);
    expect(kept(store, ids)).toEqual(ids.slice(2));
  });

  it("keeps no more tokens than it may, and counts what it forgot", () => {
    const store = new ResponseStore(10, 6);
    for (const [id, length] of Object.entries({ a: 2, b: 2, c: 2, d: 3 }))
      store.add(id, Array(length).fill(1));
    expect(kept(store, ["a", "b", "c", "d"])).toEqual(["c", "d"]);
    store.add("e", [1]);
    expect(kept(store, ["c", "d", "e"])).toEqual(["c", "d", "e"]);
    store.add("f", Array(7).fill(1));
    expect(kept(store, ["c", "d", "e", "f"])).toEqual([]);
    store.add("g", Array(6).fill(1));
    expect(kept(store, ["g"])).toEqual(["g"]);
  });
});
