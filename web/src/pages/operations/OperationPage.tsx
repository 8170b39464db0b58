import { useOperation } from "../../api/data";
import { useNow } from "../../api/now";
import type { Operation } from "../../api/types";
import { bytesRate, count, dateTime, duration, integer, percent, secondsSince } from "../../model/format";
import { finished, operationTone, stalledAfter } from "../../model/states";
import { Fact } from "../../parts/figures";
import { PageHead } from "../../parts/PageHead";
import { Partial, Region } from "../../parts/Region";
import { State } from "../../parts/State";
import { t } from "../../text";
import { Announcer } from "./Announcer";
import { Log } from "./Log";
import { MoveStrip } from "./MoveStrip";
import { MovesTable } from "./MovesTable";
import { OperationActions } from "./OperationActions";
import { OperationBar } from "./OperationBar";
import styles from "./Operations.module.css";
import { amountLine, took } from "./progressLine";
import { SpeedControl } from "./SpeedControl";

export function OperationPage({ id }: { id: string }) {
  const query = useOperation(id);
  return (
    <>
      <PageHead
        title={query.data?.summary ?? id}
        sub={
          query.data &&
          t.operation.sub(query.data.id, query.data.createdBy ?? "", dateTime(query.data.createdAt))
        }
        back={{ href: "/operations", label: t.frame.places.operations }}
      >
        {query.data && <OperationActions operation={query.data} />}
      </PageHead>
      <Region query={query} height={360}>
        {(operation) => (
          <div className="stack">
            <Standing operation={operation} />
            {!!operation.moves?.length && <MoveStrip moves={operation.moves} />}
            {!!operation.moves?.length && <MovesTable moves={operation.moves} />}
            <Log lines={operation.log ?? []} />
          </div>
        )}
      </Region>
    </>
  );
}

function Standing({ operation }: { operation: Operation }) {
  const p = operation.progress;
  const copies = (operation.moves?.length ?? 0) > 0;
  return (
    <section className="panel panel-body stack" aria-label={t.operation.standing}>
      <div className="spread">
        <p className={styles.big}>{percent(operation.state === "succeeded" ? 1 : p?.fraction)}</p>
        <State tone={operationTone(operation.state)} testId="operation-state">
          {t.operationState[operation.state]}
        </State>
      </div>
      <OperationBar operation={operation} testId="operation-progress" />
      <p className="second" data-testid="operation-line">
        {line(operation)}
      </p>
      <Announcer operation={operation} />
      {operation.reason && <Reason operation={operation} />}
      <Stall operation={operation} />
      {copies && p && (
        <dl className={styles.facts}>
          <Fact label={t.operation.slots}>{t.progress.of(integer(p.slotsDone), integer(p.slotsTotal))}</Fact>
          <Fact label={t.operation.keys}>{t.progress.of(count(p.keysDone), count(p.keysTotal))}</Fact>
          {!finished(operation.state) && (
            <>
              <Fact label={t.operation.keyRate}>{t.operation.perSecond(count(p.keysPerSecond))}</Fact>
              <Fact label={t.operation.byteRate}>{bytesRate(p.bytesPerSecond)}</Fact>
            </>
          )}
          <Fact label={t.operation.limit}>
            <SpeedControl operation={operation} />
          </Fact>
        </dl>
      )}
    </section>
  );
}

/** What is said under the bar: how far, or how it ended. */
function line(operation: Operation): string {
  const p = operation.progress;
  if (operation.state === "succeeded") return t.operation.done(took(operation));
  if (finished(operation.state) && p && p.slotsTotal > 0) {
    return t.operation.ended(integer(p.slotsDone), integer(p.slotsTotal), took(operation));
  }
  return amountLine(operation);
}

function Reason({ operation }: { operation: Operation }) {
  return (
    <p
      className={styles.reasonBox}
      data-bad={operation.state === "failed" || undefined}
      data-testid="operation-reason"
    >
      {operation.reason}
    </p>
  );
}

/** A running operation that stands still says so, and what is safe to do. */
function Stall({ operation }: { operation: Operation }) {
  const idle = secondsSince(operation.updatedAt, useNow());
  if (operation.state !== "running" || idle === null || idle < stalledAfter) return null;
  return <Partial>{t.operation.stalled(duration(idle))}</Partial>;
}
