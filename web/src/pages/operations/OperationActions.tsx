import { Button } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { Pause, Play, X } from "lucide-react";
import { useState } from "react";
import { useOperationAction } from "../../api/data";
import type { Operation, OperationAction } from "../../api/types";
import { equivalents } from "../../model/commands";
import { integer } from "../../model/format";
import { Confirm } from "../../parts/Confirm";
import { useReasonAgainst, Why } from "../../parts/role";
import { t } from "../../text";

/** Pause and resume are harmless and happen at once; cancel asks first. */
export function OperationActions({ operation }: { operation: Operation }) {
  const act = useOperationAction();
  const [asking, setAsking] = useState(false);
  const reason = useReasonAgainst("operator");
  const may = (action: OperationAction) => operation.actions?.includes(action) ?? false;
  const run = (action: OperationAction) =>
    act.mutate(
      { id: operation.id, action },
      {
        onSuccess: () => setAsking(false),
        onError: (error) => {
          if (action !== "cancel")
            notifications.show({ color: "var(--bad)", title: t.common.failed, message: error.message });
        },
      },
    );

  return (
    <>
      {may("pause") && (
        <Why reason={reason}>
          <Button
            variant="default"
            leftSection={<Pause size={15} />}
            disabled={reason !== null}
            loading={act.isPending && act.variables?.action === "pause"}
            onClick={() => run("pause")}
            data-testid="operation-pause"
          >
            {t.operation.pause}
          </Button>
        </Why>
      )}
      {may("resume") && (
        <Why reason={reason}>
          <Button
            leftSection={<Play size={15} />}
            disabled={reason !== null}
            loading={act.isPending && act.variables?.action === "resume"}
            onClick={() => run("resume")}
            data-testid="operation-resume"
          >
            {t.operation.resume}
          </Button>
        </Why>
      )}
      {may("cancel") && (
        <Why reason={reason}>
          <Button
            variant="default"
            leftSection={<X size={15} />}
            disabled={reason !== null}
            onClick={() => {
              act.reset();
              setAsking(true);
            }}
            data-testid="operation-cancel"
          >
            {t.operation.cancelAsk}
          </Button>
        </Why>
      )}
      <Confirm
        opened={asking}
        onClose={() => setAsking(false)}
        title={t.operation.cancelTitle(operation.summary)}
        verb={t.operation.cancelVerb}
        equivalent={equivalents.act("cancel", operation.id)}
        busy={act.isPending}
        error={act.variables?.action === "cancel" ? act.error : null}
        onConfirm={() => run("cancel")}
        testId="operation-cancel-confirm"
      >
        <CancelFacts operation={operation} />
      </Confirm>
    </>
  );
}

function CancelFacts({ operation }: { operation: Operation }) {
  const moves = operation.moves ?? [];
  const sum = (states: string[]) =>
    moves.filter((m) => states.includes(m.state)).reduce((slots, m) => slots + m.slotCount, 0);
  const done = sum(["done", "purging"]);
  const over = sum(["handing-over"]);
  const total = moves.reduce((slots, m) => slots + m.slotCount, 0);
  if (moves.length === 0) return <p>{t.operation.cancelPlain}</p>;
  return (
    <ul className="stack">
      <li>{t.operation.cancelStays(integer(done))}</li>
      {over > 0 && <li>{t.operation.cancelOver(integer(over))}</li>}
      <li>{t.operation.cancelReturns(integer(total - done - over))}</li>
      <li>{t.operation.cancelSafe}</li>
    </ul>
  );
}
