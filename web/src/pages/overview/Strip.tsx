// Proxies above groups: width is the share of the work, the fill of a group
// its memory.

import { Link } from "wouter";
import type { Group, ProxyInfo } from "../../api/types";
import { bytes, count, integer, percent, ratePerSecond } from "../../model/format";
import { groupTone, proxyTone } from "../../model/states";
import { GroupMark, useGroupColor } from "../../parts/groups";
import { t } from "../../text";
import styles from "./Overview.module.css";

const opsText = (ops: number) => {
  const { value, unit } = ratePerSecond(ops);
  return `${value} ${unit}`;
};
/** Nobody gets too thin to read, so shares are softened. */
const grow = (part: number, total: number) => 4 + (total > 0 ? (10 * part) / total : 0);

export function Strip({ proxies, groups }: { proxies: ProxyInfo[]; groups: Group[] }) {
  const colorOf = useGroupColor();
  const proxyOps = proxies.reduce((sum, p) => sum + p.opsPerSecond, 0);
  const groupOps = groups.reduce((sum, g) => sum + g.opsPerSecond, 0);
  return (
    <section className="panel" aria-labelledby="route">
      <div className="panel-head">
        <h2 id="route">{t.strip.title}</h2>
        <span className="quiet small">{t.strip.explain}</span>
      </div>
      <div className={styles.strip}>
        <h3 className="quiet">{t.frame.places.proxies}</h3>
        <ul>
          {proxies.map((p) => (
            <li key={p.id} style={{ flexGrow: grow(p.opsPerSecond, proxyOps) }}>
              <Link
                href={`/proxies/${encodeURIComponent(p.id)}`}
                className={styles.box}
                data-tone={proxyTone(p.state)}
              >
                <strong>{p.id}</strong>
                <span className="second">
                  {p.state === "serving" ? opsText(p.opsPerSecond) : t.proxyState[p.state]}
                </span>
                <span className="quiet small">{t.overview.clients(integer(p.clients))}</span>
              </Link>
            </li>
          ))}
        </ul>
        <h3 className="quiet">{t.frame.places.groups}</h3>
        <ul>
          {groups.map((g) => {
            const ratio = g.maxMemoryBytes > 0 ? g.memoryBytes / g.maxMemoryBytes : null;
            return (
              <li key={g.id} style={{ flexGrow: grow(g.opsPerSecond, groupOps) }}>
                <Link
                  href={`/groups/${encodeURIComponent(g.id)}`}
                  className={styles.box}
                  data-tone={groupTone(g.state)}
                  style={{ borderTopColor: colorOf(g.id) }}
                >
                  {ratio !== null && <span className={styles.fill} style={{ height: `${ratio * 100}%` }} />}
                  <GroupMark id={g.id} strong />
                  <span className="second">{opsText(g.opsPerSecond)}</span>
                  <span className="quiet small">
                    {t.strip.slots(integer(g.slotCount))} · {count(g.keys)} {t.units.keys} ·{" "}
                    {bytes(g.memoryBytes)}
                    {ratio !== null && ` (${percent(ratio)})`}
                  </span>
                </Link>
              </li>
            );
          })}
        </ul>
      </div>
    </section>
  );
}
