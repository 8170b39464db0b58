import { integer, percent } from "../../model/format";
import { countOwners, countStates, type SlotMap } from "../../model/slotmap";
import { GroupMark } from "../../parts/groups";
import { t } from "../../text";
import styles from "./Slots.module.css";

/** Groups with what they own; pointing at one dims the others on the map. */
export function Legend({ map, onPoint }: { map: SlotMap; onPoint: (group: string | null) => void }) {
  const counts = countOwners(map);
  const states = countStates(map);
  return (
    <div>
      <ul className={styles.legend}>
        {map.groups.map((id) => (
          <li key={id}>
            <button
              type="button"
              data-testid={`slot-legend-${id}`}
              data-slots={counts[id]}
              onMouseEnter={() => onPoint(id)}
              onMouseLeave={() => onPoint(null)}
              onFocus={() => onPoint(id)}
              onBlur={() => onPoint(null)}
            >
              <GroupMark id={id} />
              <span>{t.slots.count(integer(counts[id]))}</span>
              <span className="quiet">{percent((counts[id] ?? 0) / map.slotCount)}</span>
            </button>
          </li>
        ))}
      </ul>
      <ul className={styles.signs}>
        {(["moving", "held", "unassigned"] as const).map((state) => (
          <li key={state} className={states[state] ? undefined : "quiet"}>
            <span className={styles.sign} data-state={state} aria-hidden />
            {t.slotState[state]} <span className="quiet">{integer(states[state])}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
