import { Tooltip } from "@mantine/core";
import { useLive } from "../api/live";
import { t } from "../text";
import styles from "./Frame.module.css";

export function LiveSign() {
  const { state } = useLive();
  return (
    <Tooltip label={t.live.explain[state]} multiline maw={260}>
      <span className={styles.live} data-state={state} role="status" data-testid="live">
        <span className={styles.dot} aria-hidden />
        <span>{t.live.state[state]}</span>
      </span>
    </Tooltip>
  );
}
