import { t } from "../../text";
import styles from "./Rebalance.module.css";

const steps = ["goal", "preview", "run"] as const;

export function Steps({ at }: { at: (typeof steps)[number] }) {
  return (
    <ol className={styles.steps} aria-label={t.rebalance.steps}>
      {steps.map((step, i) => (
        <li key={step} aria-current={step === at ? "step" : undefined}>
          <span>{i + 1}</span> {t.rebalance.step[step]}
        </li>
      ))}
    </ol>
  );
}
