// How long to wait before the n-th try in a row: doubling from one second to a
// ceiling, with jitter so that many pages do not come back in one wave.
export function backoff(attempt: number, random: () => number = Math.random): number {
  const ceiling = Math.min(15_000, 1000 * 2 ** Math.max(0, attempt));
  return Math.round(ceiling * (0.5 + random() / 2));
}
