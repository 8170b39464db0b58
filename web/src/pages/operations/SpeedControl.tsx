import { NativeSelect } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useOperationLimits } from "../../api/data";
import type { Operation } from "../../api/types";
import { bytesRate } from "../../model/format";
import { finished } from "../../model/states";
import { type Speed, speeds } from "../../model/wizard";
import { useMay } from "../../parts/role";
import { t } from "../../text";

/** The speed limit of a running operation; 0 means none. */
export function SpeedControl({ operation }: { operation: Operation }) {
  const change = useOperationLimits();
  const may = useMay("operator");
  const now = operation.limits?.bytesPerSecond ?? 0;
  const text = now > 0 ? bytesRate(now) : t.speed.none;
  if (finished(operation.state) || !may) return <>{text}</>;

  const options = Object.entries(speeds).map(([id, value]) => ({
    value: String(value ?? 0),
    label: `${t.speed[id as Speed]}${value ? ` (${bytesRate(value)})` : ""}`,
  }));
  if (!options.some((o) => o.value === String(now))) options.push({ value: String(now), label: text });
  return (
    <NativeSelect
      size="xs"
      aria-label={t.operation.limit}
      value={String(now)}
      data={options}
      disabled={change.isPending}
      onChange={(event) =>
        change.mutate(
          { id: operation.id, bytesPerSecond: Number(event.currentTarget.value) },
          {
            onError: (error) =>
              notifications.show({ color: "var(--bad)", title: t.common.failed, message: error.message }),
          },
        )
      }
      data-testid="operation-limit"
    />
  );
}
