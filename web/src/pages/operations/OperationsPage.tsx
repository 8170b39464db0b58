import { Link } from "wouter";
import { useSnapshot } from "../../api/data";
import { useNow } from "../../api/now";
import type { Operation } from "../../api/types";
import { ago, dateTime } from "../../model/format";
import { operationTone, splitOperations } from "../../model/states";
import { AutoRebalance } from "../../parts/AutoRebalance";
import { PageHead } from "../../parts/PageHead";
import { Empty, Region } from "../../parts/Region";
import { State } from "../../parts/State";
import { t } from "../../text";
import { OperationBar } from "./OperationBar";
import styles from "./Operations.module.css";
import { progressLine, took } from "./progressLine";

export function OperationsPage() {
  const query = useSnapshot((s) => s.operations);
  return (
    <>
      <PageHead title={t.frame.places.operations} sub={t.operations.sub}>
        <AutoRebalance />
      </PageHead>
      <Region query={query} height={320}>
        {(operations) => {
          const { running, queued, history } = splitOperations(operations);
          if (operations.length === 0) {
            return (
              <div className="panel">
                <Empty title={t.operations.none} />
              </div>
            );
          }
          return (
            <div className="stack">
              {running.length + queued.length > 0 && <Current operations={[...running, ...queued]} />}
              {history.length > 0 && <History operations={history} />}
            </div>
          );
        }}
      </Region>
    </>
  );
}

function Current({ operations }: { operations: Operation[] }) {
  return (
    <section className="panel" aria-labelledby="current">
      <div className="panel-head">
        <h2 id="current">{t.operations.current}</h2>
      </div>
      <ul className={styles.current}>
        {operations.map((op) => (
          <li key={op.id} data-testid={`operation-row-${op.id}`}>
            <div className="spread">
              <Link href={`/operations/${op.id}`}>
                <strong>{op.summary}</strong>
              </Link>
              <State tone={operationTone(op.state)}>{t.operationState[op.state]}</State>
            </div>
            <OperationBar operation={op} thin />
            <p className="second small">{op.reason || progressLine(op)}</p>
          </li>
        ))}
      </ul>
    </section>
  );
}

function History({ operations }: { operations: Operation[] }) {
  const now = useNow();
  return (
    <section className="panel" aria-labelledby="history">
      <div className="panel-head">
        <h2 id="history">{t.operations.history}</h2>
        <span className="quiet small">{t.operations.historyCount(operations.length)}</span>
      </div>
      <table className="table cards">
        <caption className="hidden-text">{t.operations.history}</caption>
        <thead>
          <tr>
            <th scope="col">{t.operations.what}</th>
            <th scope="col">{t.operations.outcome}</th>
            <th scope="col">{t.operations.by}</th>
            <th scope="col" className="num">
              {t.operations.took}
            </th>
            <th scope="col" className="num">
              {t.operations.finished}
            </th>
          </tr>
        </thead>
        <tbody>
          {operations.map((op) => (
            <tr key={op.id} data-testid={`operation-row-${op.id}`}>
              <td data-label={t.operations.what}>
                <span>
                  <Link href={`/operations/${op.id}`}>{op.summary}</Link>
                  {op.reason && <span className={styles.reason}>{op.reason}</span>}
                </span>
              </td>
              <td data-label={t.operations.outcome}>
                <State tone={operationTone(op.state)}>{t.operationState[op.state]}</State>
              </td>
              <td data-label={t.operations.by}>{op.createdBy}</td>
              <td data-label={t.operations.took} className="num">
                {took(op)}
              </td>
              <td data-label={t.operations.finished} className="num" title={dateTime(op.finishedAt)}>
                {ago(op.finishedAt, now)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
