// The map again, as a table of ranges: for screen readers, for narrow screens,
// and for copying.

import type { SlotRun } from "../../api/types";
import { integer } from "../../model/format";
import { readRanges } from "../../model/ranges";
import { runLength } from "../../model/slotmap";
import { GroupMark } from "../../parts/groups";
import { RangeText } from "../../parts/RangeText";
import { State } from "../../parts/State";
import { t } from "../../text";

const tones = { online: "neutral", moving: "active", held: "active", unassigned: "bad" } as const;

export function RunTable({ runs }: { runs: SlotRun[] }) {
  const sorted = runs.toSorted(
    (a, b) => (readRanges(a.slots)[0]?.first ?? 0) - (readRanges(b.slots)[0]?.first ?? 0),
  );
  return (
    <section className="panel" aria-labelledby="slot-runs">
      <div className="panel-head">
        <h2 id="slot-runs">{t.slots.runs}</h2>
        <span className="quiet small">{t.slots.runCount(sorted.length)}</span>
      </div>
      <div className="table-scroll">
        <table className="table cards" data-testid="slot-table">
          <caption className="hidden-text">{t.slots.runs}</caption>
          <thead>
            <tr>
              <th scope="col">{t.slots.slotsColumn}</th>
              <th scope="col">{t.slots.group}</th>
              <th scope="col">{t.slots.state}</th>
              <th scope="col" className="num">
                {t.slots.howMany}
              </th>
            </tr>
          </thead>
          <tbody>
            {sorted.map((run) => (
              <tr key={run.slots}>
                <td data-label={t.slots.slotsColumn}>
                  <RangeText slots={run.slots} />
                </td>
                <td data-label={t.slots.group}>
                  <span className="row">
                    <GroupMark id={run.group} />
                    {run.to && (
                      <>
                        <span className="quiet">{t.slots.to}</span> <GroupMark id={run.to} />
                      </>
                    )}
                  </span>
                </td>
                <td data-label={t.slots.state}>
                  <State tone={tones[run.state] ?? "neutral"}>{t.slotState[run.state] ?? run.state}</State>
                </td>
                <td data-label={t.slots.howMany} className="num">
                  {integer(runLength(run))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
