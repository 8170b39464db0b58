// Drawing of the slot map.
//
// Two layers on one canvas: the cells, one pixel a slot in an image of 128 by
// 128 that is scaled up without smoothing, and over it what differs from the
// plain case. Runs are drawn row by row with a pattern, never slot by slot, so
// a new cluster (all hollow) or a large move (all hatched) costs no more than
// a calm one. Cells are whole device pixels wide, or they would differ in size.

import { toRgb } from "../../model/palette";
import { hasSlot, type Range } from "../../model/ranges";
import { type SlotMap, stateCode } from "../../model/slotmap";

export type Look = {
  colorOf: (group: string) => string;
  ground: string;
  line: string;
  ink: string;
  accent: string;
};

export type View = {
  columns: number;
  cell: number; // device pixels
  selection: Range[];
  cursor: number | null;
  dimOthers: string | null; // a group that stays bright
  blink: number | null; // a slot that was looked for
};

export function paint(canvas: HTMLCanvasElement, map: SlotMap, view: View, look: Look): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const rows = Math.ceil(map.slotCount / view.columns);
  const width = view.columns * view.cell;
  const height = rows * view.cell;
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  context.imageSmoothingEnabled = false;
  context.clearRect(0, 0, width, height);
  paintCells(context, map, view, look, rows);
  paintExceptions(context, map, view, look);
  paintGaps(context, view, look, rows);
  paintSelection(context, view, look, map.slotCount);
}

function paintCells(
  context: CanvasRenderingContext2D,
  map: SlotMap,
  view: View,
  look: Look,
  rows: number,
): void {
  const image = new ImageData(view.columns, rows);
  const ground = toRgb(look.ground);
  const colors = map.groups.map((id) => {
    const rgb = toRgb(look.colorOf(id));
    return pack(view.dimOthers === null || view.dimOthers === id ? rgb : mix(rgb, ground, 0.82));
  });
  const pixels = new Uint32Array(image.data.buffer);
  const none = pack(ground);
  for (let slot = 0; slot < map.slotCount; slot++) pixels[slot] = colors[map.owner[slot]!] ?? none;
  const cells = document.createElement("canvas");
  cells.width = view.columns;
  cells.height = rows;
  cells.getContext("2d")?.putImageData(image, 0, 0);
  context.drawImage(cells, 0, 0, view.columns * view.cell, rows * view.cell);
}

/** RGBA bytes as one little-endian word. */
const pack = ([r, g, b]: [number, number, number]): number => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

const mix = (
  a: [number, number, number],
  b: [number, number, number],
  part: number,
): [number, number, number] => [
  Math.round(a[0] + (b[0] - a[0]) * part),
  Math.round(a[1] + (b[1] - a[1]) * part),
  Math.round(a[2] + (b[2] - a[2]) * part),
];

/** Calls back with the pieces of a run that lie in one row each. */
function eachRow(
  first: number,
  last: number,
  columns: number,
  call: (x: number, y: number, length: number) => void,
) {
  for (let slot = first; slot <= last; ) {
    const y = Math.floor(slot / columns);
    const end = Math.min(last, (y + 1) * columns - 1);
    call(slot % columns, y, end - slot + 1);
    slot = end + 1;
  }
}

function paintExceptions(context: CanvasRenderingContext2D, map: SlotMap, view: View, look: Look): void {
  const patterns = new Map<string, CanvasPattern | null>();
  const patternFor = (key: string, make: () => HTMLCanvasElement) => {
    if (!patterns.has(key)) patterns.set(key, context.createPattern(make(), "repeat"));
    return patterns.get(key)!;
  };
  const { cell, columns } = view;
  for (let slot = 0; slot < map.slotCount; ) {
    const state = map.state[slot]!;
    const target = map.target[slot]!;
    let last = slot;
    while (last + 1 < map.slotCount && map.state[last + 1] === state && map.target[last + 1] === target)
      last++;
    if (state !== stateCode.online) {
      const to = map.groups[target];
      context.fillStyle =
        state === stateCode.unassigned
          ? patternFor("hollow", () => hollow(cell, look.line))
          : patternFor(`hatch ${to}`, () => hatch(cell, to === undefined ? look.ground : look.colorOf(to)));
      eachRow(slot, last, columns, (x, y, length) => {
        context.fillRect(x * cell, y * cell, length * cell, cell);
        if (state === stateCode.held) {
          context.strokeStyle = look.ink;
          context.lineWidth = Math.max(1, Math.round(cell / 6));
          context.strokeRect(x * cell + 0.5, y * cell + 0.5, length * cell - 1, cell - 1);
        }
      });
    }
    slot = last + 1;
  }
}

function tile(size: number, draw: (context: CanvasRenderingContext2D) => void): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = size;
  canvas.height = size;
  const context = canvas.getContext("2d");
  if (context) draw(context);
  return canvas;
}

/** Diagonal stripes of the new owner over the old one's colour. */
function hatch(cell: number, color: string): HTMLCanvasElement {
  const size = Math.max(4, cell);
  return tile(size, (context) => {
    context.strokeStyle = color;
    context.lineWidth = size / 2.6;
    for (const offset of [-size, 0, size]) {
      context.beginPath();
      context.moveTo(offset - 1, size + 1);
      context.lineTo(offset + size + 1, -1);
      context.stroke();
    }
  });
}

function hollow(cell: number, line: string): HTMLCanvasElement {
  return tile(cell, (context) => {
    context.strokeStyle = line;
    context.lineWidth = 1;
    // Inside the gap that is drawn over the right and lower edge later.
    const side = cell - gapOf(cell);
    context.strokeRect(0.5, 0.5, side - 1, side - 1);
  });
}

const gapOf = (cell: number): number => (cell < 4 ? 0 : cell < 14 ? 1 : 2);

/** Hairlines between the cells, where cells are large enough to have them. */
function paintGaps(context: CanvasRenderingContext2D, view: View, look: Look, rows: number): void {
  const gap = gapOf(view.cell);
  if (gap === 0) return;
  context.fillStyle = look.ground;
  // Between small cells a full line would be most of the picture.
  context.globalAlpha = view.cell >= 8 ? 1 : 0.42;
  for (let x = 1; x <= view.columns; x++) context.fillRect(x * view.cell - gap, 0, gap, rows * view.cell);
  for (let y = 1; y <= rows; y++) context.fillRect(0, y * view.cell - gap, view.columns * view.cell, gap);
  context.globalAlpha = 1;
}

function paintSelection(context: CanvasRenderingContext2D, view: View, look: Look, slotCount: number): void {
  const { cell, columns, selection } = view;
  if (selection.length > 0) {
    // What is not selected steps back, then the outline is drawn around.
    context.fillStyle = look.ground;
    context.globalAlpha = 0.62;
    let from = 0;
    for (const { first, last } of [...selection, { first: slotCount, last: slotCount }]) {
      if (first > from)
        eachRow(from, first - 1, columns, (x, y, n) => context.fillRect(x * cell, y * cell, n * cell, cell));
      from = last + 1;
    }
    context.globalAlpha = 1;
    context.strokeStyle = look.accent;
    context.lineWidth = 2;
    context.stroke(outline(selection, columns, cell));
  }
  for (const [slot, color] of [
    [view.blink, look.accent],
    [view.cursor, look.ink],
  ] as const) {
    if (slot === null) continue;
    const pad = Math.max(2, Math.round(cell / 3));
    context.strokeStyle = color;
    context.lineWidth = Math.max(2, Math.round(cell / 5));
    const x = (slot % columns) * cell;
    const y = Math.floor(slot / columns) * cell;
    context.strokeRect(x - pad / 2, y - pad / 2, cell + pad - 1, cell + pad - 1);
  }
}

/** The edge between selected and not selected cells, as line pieces. */
function outline(selection: Range[], columns: number, cell: number): Path2D {
  const path = new Path2D();
  const has = (slot: number) => slot >= 0 && hasSlot(selection, slot);
  for (const { first, last } of selection) {
    for (let slot = first; slot <= last; slot++) {
      const x = (slot % columns) * cell;
      const y = Math.floor(slot / columns) * cell;
      const line = (x1: number, y1: number, x2: number, y2: number) => {
        path.moveTo(x1, y1);
        path.lineTo(x2, y2);
      };
      if (!has(slot - columns)) line(x, y, x + cell, y);
      if (!has(slot + columns)) line(x, y + cell, x + cell, y + cell);
      if (slot % columns === 0 || !has(slot - 1)) line(x, y, x, y + cell);
      if (slot % columns === columns - 1 || !has(slot + 1)) line(x + cell, y, x + cell, y + cell);
    }
  }
  return path;
}
