import { Button } from "@mantine/core";
import { useState } from "react";
import type { MoveProgress } from "../../api/types";
import { count, integer, milliseconds, percent } from "../../model/format";
import { laneOf, type Tone } from "../../model/states";
import { GroupMark } from "../../parts/groups";
import { RangeText } from "../../parts/RangeText";
import { State } from "../../parts/State";
import { t } from "../../text";
import styles from "./Operations.module.css";

const toneOf = (move: MoveProgress): Tone => {
  const lane = laneOf(move.state);
  if (lane === "failed") return "bad";
  if (move.state === "parked") return "warn";
  return lane === "moving" || lane === "handing-over" ? "active" : "neutral";
};

/** Moves that are on or need a look first; the rest on demand. */
export function MovesTable({ moves }: { moves: MoveProgress[] }) {
  const [all, setAll] = useState(moves.length <= 12);
  const rank = { failed: 0, stopped: 1, "handing-over": 2, moving: 3, waiting: 4, done: 5 };
  const notable = moves.filter((m) => !["waiting", "done"].includes(laneOf(m.state)) || m.reason);
  const shown = all ? moves : notable.toSorted((a, b) => rank[laneOf(a.state)] - rank[laneOf(b.state)]);
  return (
    <section className="panel" aria-labelledby="moves">
      <div className="panel-head">
        <h2 id="moves">{all ? t.moves.all : t.moves.notable}</h2>
        <Button size="compact-sm" variant="subtle" onClick={() => setAll(!all)}>
          {all ? t.moves.showNotable : t.moves.showAll(moves.length)}
        </Button>
      </div>
      {shown.length === 0 ? (
        <p className="panel-body second">{t.moves.noneNotable}</p>
      ) : (
        <div className="table-scroll">
          <table className="table cards">
            <caption className="hidden-text">{t.moves.all}</caption>
            <thead>
              <tr>
                <th scope="col">{t.slots.slotsColumn}</th>
                <th scope="col">{t.moves.way}</th>
                <th scope="col">{t.slots.state}</th>
                <th scope="col" className="num">
                  {t.moves.keys}
                </th>
                <th scope="col" className="num">
                  {t.moves.hold}
                </th>
                <th scope="col" className="num">
                  {t.moves.attempts}
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((move) => (
                <tr key={`${move.slots} ${move.from} ${move.to}`}>
                  <td data-label={t.slots.slotsColumn}>
                    <span>
                      <RangeText slots={move.slots} keep={2} />
                      <span className="quiet"> · {integer(move.slotCount)}</span>
                      {move.reason && <span className={styles.reason}>{move.reason}</span>}
                    </span>
                  </td>
                  <td data-label={t.moves.way}>
                    <span className="row">
                      <GroupMark id={move.from} /> <span className="quiet">{t.slots.to}</span>{" "}
                      <GroupMark id={move.to} />
                    </span>
                  </td>
                  <td data-label={t.slots.state}>
                    <State tone={toneOf(move)}>{t.moveState[move.state] ?? move.state}</State>
                  </td>
                  <td data-label={t.moves.keys} className="num">
                    {count(move.keysDone)}
                    {move.keysTotal > 0 && move.keysDone > 0 && laneOf(move.state) !== "done" && (
                      <span className="quiet"> {percent(move.keysDone / move.keysTotal)}</span>
                    )}
                  </td>
                  <td data-label={t.moves.hold} className="num">
                    {move.holdMs ? milliseconds(move.holdMs) : ""}
                  </td>
                  <td data-label={t.moves.attempts} className="num">
                    {move.attempts && move.attempts > 1 ? move.attempts : ""}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
