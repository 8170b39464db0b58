// Numbers for people. Every figure leaves here with its unit; a value that is
// not known is an en dash, never 0. Units are joined by a no-break space.

const nb = "\u00a0";
export const unknown = "–";

type Maybe = number | null | undefined;
const known = (n: Maybe): n is number => typeof n === "number" && Number.isFinite(n);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function integer(n: Maybe): string {
  return known(n) ? whole.format(n) : unknown;
}

/** Three significant digits at most, trailing zeros dropped. */
function short(n: number): string {
  const digits = Math.abs(n) >= 99.95 ? 0 : Math.abs(n) >= 9.995 ? 1 : 2;
  return new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(n);
}

export type Figure = { value: string; unit: string };
export const join = (f: Figure): string => (f.unit ? `${f.value}${nb}${f.unit}` : f.value);

/** 812, 12.4 k, 3.1 M. */
export function scaled(n: Maybe): Figure {
  if (!known(n)) return { value: unknown, unit: "" };
  const abs = Math.abs(n);
  if (abs >= 999_950_000) return { value: short(n / 1e9), unit: "G" };
  if (abs >= 999_950) return { value: short(n / 1e6), unit: "M" };
  if (abs >= 9_999.5) return { value: short(n / 1e3), unit: "k" };
  return { value: whole.format(n), unit: "" };
}

export const count = (n: Maybe): string => join(scaled(n));

export function ratePerSecond(n: Maybe): Figure {
  const { value, unit } = scaled(n);
  return { value, unit: `${unit}${unit ? nb : ""}ops/s` };
}

export function bytesFigure(n: Maybe): Figure {
  if (!known(n)) return { value: unknown, unit: "" };
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let value = n;
  let i = 0;
  while (Math.abs(value) >= 1023.5 && i < units.length - 1) {
    value /= 1024;
    i++;
  }
  return { value: i === 0 ? whole.format(value) : short(value), unit: units[i]! };
}

export const bytes = (n: Maybe): string => join(bytesFigure(n));
export const bytesRate = (n: Maybe): string => (known(n) ? `${bytes(n)}/s` : unknown);

export function percent(ratio: Maybe): string {
  if (!known(ratio)) return unknown;
  const value = ratio * 100;
  const digits = value > 0 && value < 10 ? 1 : 0;
  // 100 % is said when all is done, not when it is nearly so.
  const floor = ratio < 1 ? Math.min(value, digits ? 99.9 : 99) : value;
  return `${new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format(floor)}${nb}%`;
}

export function millisecondsFigure(n: Maybe): Figure {
  if (!known(n)) return { value: unknown, unit: "" };
  if (n >= 9_999.5) return { value: short(n / 1000), unit: "s" };
  return { value: short(n), unit: "ms" };
}
export const milliseconds = (n: Maybe): string => join(millisecondsFigure(n));

/** 45 s, 4 min 10 s, 1 h 20 min, 3 d 4 h. */
export function duration(seconds: Maybe): string {
  if (!known(seconds) || seconds < 0) return unknown;
  const s = Math.round(seconds);
  if (s < 60) return `${s}${nb}s`;
  const pair = (big: number, bigUnit: string, small: number, smallUnit: string) =>
    small ? `${big}${nb}${bigUnit} ${small}${nb}${smallUnit}` : `${big}${nb}${bigUnit}`;
  if (s < 3600) return pair(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86_400) return pair(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return pair(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

/** An estimate, rounded to what it is worth: 8 s, 40 s, 3 min, 1 h 20 min. */
export function estimate(seconds: Maybe): string {
  if (!known(seconds) || seconds < 0) return unknown;
  if (seconds < 20) return duration(Math.max(1, Math.round(seconds)));
  if (seconds < 60) return duration(Math.round(seconds / 5) * 5);
  if (seconds < 180) return duration(Math.round(seconds / 10) * 10);
  if (seconds < 5400) return duration(Math.round(seconds / 60) * 60);
  return duration(Math.round(seconds / 600) * 600);
}

export function secondsSince(iso: string | undefined, now: number): number | null {
  if (!iso) return null;
  const at = Date.parse(iso);
  // Go's zero time is a year-1 stamp and means "not set".
  return Number.isFinite(at) && at > 0 ? Math.max(0, (now - at) / 1000) : null;
}

export function ago(iso: string | undefined, now: number): string {
  const seconds = secondsSince(iso, now);
  if (seconds === null) return unknown;
  return seconds < 2 ? "now" : `${duration(seconds).split(" ")[0]} ago`;
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const dateFormat = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

export function clock(iso: string | number | undefined): string {
  const at = typeof iso === "number" ? iso : Date.parse(iso ?? "");
  return Number.isFinite(at) ? clockFormat.format(at) : unknown;
}

export function dateTime(iso: string | undefined): string {
  const at = Date.parse(iso ?? "");
  return Number.isFinite(at) && at > 0 ? dateFormat.format(at) : unknown;
}

/** How far the fullest share is above the mean: 0 is perfect balance. */
export function imbalance(shares: number[]): number {
  const total = shares.reduce((a, b) => a + b, 0);
  if (shares.length === 0 || total === 0) return 0;
  return Math.max(...shares) / (total / shares.length) - 1;
}
