// Fails the build when the first load outgrows its budget: all scripts and
// styles that index.html names, as gzip.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const budget = 260 * 1024;
const dist = new URL("../dist", import.meta.url).pathname;
const html = readFileSync(join(dist, "index.html"), "utf8");
const files = [...html.matchAll(/(?:src|href)="\/([^"]+\.(?:js|css))"/g)].map((m) => m[1]);

let total = 0;
for (const file of files) {
  const size = gzipSync(readFileSync(join(dist, file)), { level: 9 }).length;
  total += size;
  console.log(`${(size / 1024).toFixed(1).padStart(7)} KiB  ${file}`);
}
console.log(`${(total / 1024).toFixed(1).padStart(7)} KiB  first load, gzip (budget ${budget / 1024} KiB)`);
if (files.length === 0 || total > budget) {
  console.error("first load is over budget, or index.html names no files");
  process.exit(1);
}
