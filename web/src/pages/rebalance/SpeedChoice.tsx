import { Radio } from "@mantine/core";
import { bytesRate } from "../../model/format";
import { type Speed, speeds } from "../../model/wizard";
import { t } from "../../text";
import styles from "./Rebalance.module.css";

export function SpeedChoice({ value, onChange }: { value: Speed; onChange: (speed: Speed) => void }) {
  return (
    <Radio.Group value={value} onChange={(next) => onChange(next as Speed)} label={t.speed.label}>
      <div className={styles.speeds}>
        {(Object.keys(speeds) as Speed[]).map((id) => {
          const limit = speeds[id];
          return (
            <Radio
              key={id}
              value={id}
              label={t.speed[id]}
              description={limit ? t.speed.atMost(bytesRate(limit)) : t.speed.none}
            />
          );
        })}
      </div>
    </Radio.Group>
  );
}
