import type { Share } from "../../api/types";
import { bytes, count, imbalance, integer, percent } from "../../model/format";
import { naturalOrder } from "../../model/palette";
import { GroupMark, useGroupColor } from "../../parts/groups";
import { t } from "../../text";
import styles from "./Rebalance.module.css";

/** What each group has now and will have, as two bars on one scale. */
export function BeforeAfter({ before, after }: { before: Share[]; after: Share[] }) {
  const colorOf = useGroupColor();
  const ids = naturalOrder(new Set([...before, ...after].map((s) => s.group)));
  const find = (list: Share[], id: string): Share =>
    list.find((s) => s.group === id) ?? { group: id, slots: 0, keys: 0, bytes: 0 };
  const most = Math.max(1, ...before.map((s) => s.slots), ...after.map((s) => s.slots));
  const spread = (list: Share[]) => percent(imbalance(ids.map((id) => find(list, id).slots)));

  return (
    <section className="panel" aria-labelledby="before-after">
      <div className="panel-head">
        <h2 id="before-after">{t.plan.beforeAfter}</h2>
        <span className="quiet small">{t.plan.imbalance(spread(before), spread(after))}</span>
      </div>
      <div className="table-scroll">
        <table className={`table ${styles.compare}`} data-testid="plan-before-after">
          <caption className="hidden-text">{t.plan.beforeAfter}</caption>
          <thead>
            <tr>
              <th scope="col">{t.slots.group}</th>
              <th scope="col" className={styles.barsColumn}>
                {t.plan.bars}
              </th>
              <th scope="col" className="num">
                {t.plan.slotsNow}
              </th>
              <th scope="col" className="num">
                {t.plan.slotsThen}
              </th>
              <th scope="col" className={`num ${styles.wide}`}>
                {t.plan.change}
              </th>
              <th scope="col" className={`num ${styles.wide}`}>
                {t.plan.keysThen}
              </th>
              <th scope="col" className={`num ${styles.wide}`}>
                {t.plan.bytesThen}
              </th>
            </tr>
          </thead>
          <tbody>
            {ids.map((id) => {
              const was = find(before, id);
              const is = find(after, id);
              const change = is.slots - was.slots;
              return (
                <tr key={id} data-testid={`plan-group-${id}`} data-before={was.slots} data-after={is.slots}>
                  <td>
                    <GroupMark id={id} strong />
                  </td>
                  <td className={styles.barsColumn} aria-hidden>
                    <span className={styles.barBefore} style={{ width: `${(was.slots / most) * 100}%` }} />
                    <span
                      className={styles.barAfter}
                      style={{ width: `${(is.slots / most) * 100}%`, background: colorOf(id) }}
                    />
                  </td>
                  <td className="num">{integer(was.slots)}</td>
                  <td className="num">
                    <strong>{integer(is.slots)}</strong>
                  </td>
                  <td className={`num second ${styles.wide}`}>
                    {change > 0 ? "+" : change < 0 ? "−" : ""}
                    {change === 0 ? t.plan.same : integer(Math.abs(change))}
                  </td>
                  <td className={`num second ${styles.wide}`}>{count(is.keys)}</td>
                  <td className={`num second ${styles.wide}`}>{bytes(is.bytes)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
