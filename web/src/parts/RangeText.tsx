import { shortenRanges } from "../model/ranges";
import { t } from "../text";

/** A list of slots, cut after a few ranges; the whole of it on demand. */
export function RangeText({ slots, keep = 3 }: { slots: string; keep?: number }) {
  const { shown, more } = shortenRanges(slots, keep);
  if (!slots) return <span className="quiet">{t.common.none}</span>;
  return (
    <span className="mono" title={more ? slots : undefined} style={{ overflowWrap: "anywhere" }}>
      {shown}
      {more > 0 && <span className="quiet"> {t.common.andMore(more)}</span>}
    </span>
  );
}
