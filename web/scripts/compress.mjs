// Writes a .br and a .gz beside every text file of the built page, so that the
// dashboard sends them as they are and compresses nothing at run time.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { extname, join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = new URL("../dist", import.meta.url).pathname;
const text = new Set([".js", ".css", ".svg", ".json", ".txt"]);

mkdirSync(dist, { recursive: true });
// Kept in the repository so that the binary builds without a built page.
writeFileSync(join(dist, ".gitkeep"), "");

for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  // index.html carries a nonce that differs by response and is sent plain.
  if (!entry.isFile() || !text.has(extname(entry.name))) continue;
  const path = join(entry.parentPath ?? entry.path, entry.name);
  const body = readFileSync(path);
  if (body.length < 1024) continue;
  writeFileSync(`${path}.br`, brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
  writeFileSync(`${path}.gz`, gzipSync(body, { level: 9 }));
}
