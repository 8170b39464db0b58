// The moves of an operation side by side, each as wide as its slots: where the
// work is, what is done, what did not go.

import { Fragment } from "react";
import type { MoveProgress } from "../../api/types";
import { integer, percent } from "../../model/format";
import { type Lane, laneOf } from "../../model/states";
import { useGroupColor } from "../../parts/groups";
import { t } from "../../text";
import styles from "./Operations.module.css";

const lanes: Lane[] = ["done", "handing-over", "moving", "waiting", "stopped", "failed"];

export function MoveStrip({ moves }: { moves: MoveProgress[] }) {
  const colorOf = useGroupColor();
  const slotsIn = (lane: Lane) =>
    moves.filter((m) => laneOf(m.state) === lane).reduce((sum, m) => sum + m.slotCount, 0);
  const words = lanes.filter((lane) => slotsIn(lane) > 0).map((lane) => ({ lane, slots: slotsIn(lane) }));
  return (
    <section className="panel panel-body stack" aria-labelledby="strip">
      <div className="spread">
        <h2 id="strip">{t.operation.strip}</h2>
        <p className="small">
          {words.map(({ lane, slots }, i) => (
            <Fragment key={lane}>
              {i > 0 && <span className="quiet"> · </span>}
              <span className={styles.laneWord} data-lane={lane}>
                {t.lane[lane]} <span className="quiet">{integer(slots)}</span>
              </span>
            </Fragment>
          ))}
        </p>
      </div>
      <div
        className={styles.strip}
        role="img"
        aria-label={words.map((w) => `${t.lane[w.lane]}: ${w.slots}`).join(", ")}
      >
        {moves.map((move) => {
          const lane = laneOf(move.state);
          const part =
            lane === "done" ? 1 : move.keysTotal > 0 ? Math.min(1, move.keysDone / move.keysTotal) : 0;
          return (
            <span
              key={`${move.slots} ${move.from} ${move.to}`}
              className={styles.piece}
              data-lane={lane}
              style={{ flexGrow: move.slotCount, borderBottomColor: colorOf(move.to) }}
              title={t.operation.pieceTitle(
                move.slots,
                move.from,
                move.to,
                t.moveState[move.state],
                percent(part),
              )}
            >
              <span style={{ height: `${part * 100}%`, background: colorOf(move.to) }} />
            </span>
          );
        })}
      </div>
    </section>
  );
}
