import { Link } from "wouter";
import type { Operation } from "../../api/types";
import { operationTone } from "../../model/states";
import { State } from "../../parts/State";
import { t } from "../../text";
import { OperationBar } from "../operations/OperationBar";
import { progressLine } from "../operations/progressLine";
import styles from "./Overview.module.css";

export function InProgress({ operations }: { operations: Operation[] }) {
  return (
    <section className="panel" aria-labelledby="in-progress">
      <div className="panel-head">
        <h2 id="in-progress">{t.overview.inProgress}</h2>
      </div>
      {operations.length === 0 ? (
        <p className={`second ${styles.calm}`}>{t.overview.nothingMoving}</p>
      ) : (
        <ul className={styles.running}>
          {operations.slice(0, 3).map((op) => (
            <li key={op.id}>
              <div className="spread">
                <Link href={`/operations/${op.id}`}>{op.summary}</Link>
                <State tone={operationTone(op.state)}>{t.operationState[op.state]}</State>
              </div>
              <OperationBar operation={op} thin />
              <p className="quiet small">{progressLine(op)}</p>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
