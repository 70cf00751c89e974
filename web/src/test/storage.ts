/** fakeStorage returns a Storage for tests, which run without a browser. */
export function fakeStorage(): Storage {
  const kept = new Map<string, string>();
  return {
    get length() {
      return kept.size;
    },
    clear: () => kept.clear(),
    getItem: (k) => kept.get(k) ?? null,
    key: (n) => [...kept.keys()][n] ?? null,
    removeItem: (k) => void kept.delete(k),
    setItem: (k, v) => void kept.set(k, v),
  };
}
