/** Where a key takes the cell cursor, or null if it is not for the map. */
export function moveCursor(key: string, at: number, columns: number, slotCount: number): number | null {
  const last = slotCount - 1;
  const clamp = (slot: number) => Math.min(last, Math.max(0, slot));
  switch (key) {
    case "ArrowLeft":
      return clamp(at - 1);
    case "ArrowRight":
      return clamp(at + 1);
    case "ArrowUp":
      return at - columns < 0 ? at : at - columns;
    case "ArrowDown":
      return at + columns > last ? at : at + columns;
    case "PageUp":
      return clamp(at - columns * 8);
    case "PageDown":
      return clamp(at + columns * 8);
    case "Home":
      return at - (at % columns);
    case "End":
      return clamp(at - (at % columns) + columns - 1);
    default:
      return null;
  }
}
