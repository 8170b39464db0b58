// Addresses of nodes as people paste them: one a line, or with commas.

export type Addresses = { addresses: string[]; faults: string[] };

const shape = /^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})$/;

export function readAddresses(text: string): Addresses {
  const addresses: string[] = [];
  const faults: string[] = [];
  for (const raw of text.split(/[\s,;]+/).filter(Boolean)) {
    const port = Number(shape.exec(raw)?.[1]);
    if (!(port >= 1 && port <= 65_535)) faults.push(raw);
    else if (!addresses.includes(raw)) addresses.push(raw);
  }
  return { addresses, faults };
}

/** The next free id in the row g1, g2, …, or after whatever the ids end in. */
export function suggestGroupId(ids: string[]): string {
  const numbers = ids.map((id) => Number(/^g(\d+)$/.exec(id)?.[1] ?? 0));
  return `g${Math.max(0, ...numbers) + 1}`;
}

export const goodGroupId = (id: string): boolean => /^[a-z0-9][a-z0-9_-]{0,31}$/i.test(id);
