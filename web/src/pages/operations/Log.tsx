import { clock, dateTime } from "../../model/format";
import { t } from "../../text";
import styles from "./Operations.module.css";

/** What happened, newest first. */
export function Log({ lines }: { lines: { at: string; text: string }[] }) {
  return (
    <section className="panel" aria-labelledby="log">
      <div className="panel-head">
        <h2 id="log">{t.operation.log}</h2>
      </div>
      {lines.length === 0 ? (
        <p className="panel-body second">{t.operation.noLog}</p>
      ) : (
        <ol className={styles.log} data-testid="operation-log">
          {lines.toReversed().map((line, i) => (
            <li key={`${line.at} ${i}`}>
              <time dateTime={line.at} title={dateTime(line.at)}>
                {clock(line.at)}
              </time>
              <span>{line.text}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
