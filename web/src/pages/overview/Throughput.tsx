import { lazy, Suspense } from "react";
import { useHistory } from "../../api/history";
import { integer, ratePerSecond } from "../../model/format";
import { t } from "../../text";
import styles from "./Overview.module.css";

// The chart library is loaded after the page is there.
const TimeChart = lazy(() => import("../../parts/TimeChart"));

export function Throughput() {
  const history = useHistory();
  const last = history.at(-1);
  const peak = Math.max(0, ...history.map((s) => s.ops));
  const summary = t.chart.summary(join(last?.ops), join(peak));
  return (
    <section className="panel" aria-labelledby="throughput">
      <div className="panel-head">
        <h2 id="throughput">{t.chart.ops}</h2>
        <span className="quiet small">{t.chart.window}</span>
      </div>
      <div className={styles.chart}>
        {history.length < 2 ? (
          <p className={`quiet ${styles.calm}`}>{t.chart.collecting}</p>
        ) : (
          <Suspense fallback={null}>
            <TimeChart
              at={history.map((s) => s.at / 1000)}
              values={history.map((s) => s.ops)}
              label={summary}
              format={(n) => integer(n)}
            />
          </Suspense>
        )}
      </div>
    </section>
  );
}

function join(ops: number | undefined): string {
  const { value, unit } = ratePerSecond(ops);
  return `${value} ${unit}`;
}
