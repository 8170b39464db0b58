import { Button } from "@mantine/core";
import { useState } from "react";
import type { Move } from "../../api/types";
import { integer } from "../../model/format";
import { GroupMark } from "../../parts/groups";
import { RangeText } from "../../parts/RangeText";
import { t } from "../../text";

const first = 10;

export function PlanMoves({ moves }: { moves: Move[] }) {
  const [all, setAll] = useState(moves.length <= first);
  return (
    <section className="panel" aria-labelledby="plan-moves">
      <div className="panel-head">
        <h2 id="plan-moves">{t.moves.all}</h2>
        <span className="quiet small">{t.moves.count(moves.length)}</span>
      </div>
      <div className="table-scroll">
        <table className="table cards" data-testid="plan-moves">
          <caption className="hidden-text">{t.moves.all}</caption>
          <thead>
            <tr>
              <th scope="col">{t.slots.slotsColumn}</th>
              <th scope="col">{t.moves.from}</th>
              <th scope="col">{t.moves.to}</th>
              <th scope="col" className="num">
                {t.slots.howMany}
              </th>
            </tr>
          </thead>
          <tbody>
            {(all ? moves : moves.slice(0, first)).map((move) => (
              <tr key={`${move.slots} ${move.from} ${move.to}`}>
                <td data-label={t.slots.slotsColumn}>
                  <RangeText slots={move.slots} keep={4} />
                </td>
                <td data-label={t.moves.from}>
                  <GroupMark id={move.from} />
                </td>
                <td data-label={t.moves.to}>
                  <GroupMark id={move.to} />
                </td>
                <td data-label={t.slots.howMany} className="num">
                  {integer(move.slotCount)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {!all && (
        <div className="panel-body">
          <Button size="compact-sm" variant="subtle" onClick={() => setAll(true)}>
            {t.moves.showAll(moves.length)}
          </Button>
        </div>
      )}
    </section>
  );
}
