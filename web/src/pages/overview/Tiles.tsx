import { useHistory } from "../../api/history";
import type { Group, Snapshot } from "../../api/types";
import {
  bytes,
  bytesFigure,
  count,
  integer,
  millisecondsFigure,
  percent,
  ratePerSecond,
} from "../../model/format";
import { Meter, Sparkline, Tile } from "../../parts/figures";
import { useGroupColor } from "../../parts/groups";
import { t } from "../../text";
import styles from "./Overview.module.css";

export function Tiles({ snapshot }: { snapshot: Snapshot }) {
  const { status, groups, proxies } = snapshot;
  const history = useHistory();
  const { served, total, held } = status.slots;
  const serving = proxies.filter((p) => p.state === "serving");
  const slowest = serving.toSorted((a, b) => b.p99Ms - a.p99Ms)[0];
  return (
    <dl className={`panel ${styles.tiles}`}>
      <Tile
        label={t.overview.slotsServed}
        figure={{ value: integer(served), unit: t.overview.of(integer(total)) }}
        tone={served < total ? "bad" : undefined}
        note={
          served < total
            ? t.overview.notServed(integer(total - served))
            : held > 0
              ? t.overview.held(integer(held))
              : t.overview.owners(groups.filter((g) => g.slotCount > 0).length, groups.length)
        }
      >
        <Shares groups={groups} total={total} />
      </Tile>
      <Tile
        label={t.overview.throughput}
        figure={ratePerSecond(status.opsPerSecond)}
        note={t.overview.clients(integer(status.clients))}
      >
        <Sparkline values={history.map((s) => s.ops)} label={t.overview.sparkline} />
      </Tile>
      <Tile
        label={t.overview.p99}
        figure={millisecondsFigure(slowest?.p99Ms)}
        note={slowest ? t.overview.slowest(slowest.id) : t.overview.noProxy}
      >
        <Sparkline values={history.map((s) => s.p99 ?? 0)} label={t.overview.sparkline} />
      </Tile>
      <MemoryTile snapshot={snapshot} />
    </dl>
  );
}

/** Who owns how much of the slots, as one bar. */
function Shares({ groups, total }: { groups: Group[]; total: number }) {
  const colorOf = useGroupColor();
  const owning = groups.filter((g) => g.slotCount > 0);
  const words = owning.map((g) => `${g.id} ${percent(total ? g.slotCount / total : 0)}`).join(", ");
  return (
    <div className={styles.shares} role="img" aria-label={words} title={words}>
      {owning.map((g) => (
        <span key={g.id} style={{ flexGrow: g.slotCount, background: colorOf(g.id) }} />
      ))}
    </div>
  );
}

function MemoryTile({ snapshot: { groups, status } }: { snapshot: Snapshot }) {
  const max = groups.reduce((sum, g) => sum + (g.maxMemoryBytes || 0), 0);
  const limited = groups.filter((g) => g.maxMemoryBytes > 0);
  const fullest = limited.toSorted(
    (a, b) => b.memoryBytes / b.maxMemoryBytes - a.memoryBytes / a.maxMemoryBytes,
  )[0];
  const ratio = fullest ? fullest.memoryBytes / fullest.maxMemoryBytes : 0;
  return (
    <Tile
      label={t.overview.memory}
      figure={bytesFigure(status.memoryBytes)}
      tone={ratio > 0.85 ? "warn" : undefined}
      note={fullest ? t.overview.fullest(fullest.id, percent(ratio)) : t.overview.noLimit(count(status.keys))}
    >
      {max > 0 && <Meter ratio={ratio} label={t.overview.memoryOf(bytes(max))} />}
    </Tile>
  );
}
