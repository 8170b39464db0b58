import { Button } from "@mantine/core";
import { Scale } from "lucide-react";
import { useLocation } from "wouter";
import { useSnapshot } from "../api/data";
import { t } from "../text";
import { useReasonAgainst, Why } from "./role";

/** Opens the wizard with a preview; moves nothing. */
export function AutoRebalance({ variant = "filled" }: { variant?: "filled" | "default" }) {
  const [, navigate] = useLocation();
  const { data } = useSnapshot((s) => ({
    groups: s.groups.length,
    unassigned: s.slots.items.length > 0 && s.slots.items.every((r) => !r.group),
  }));
  const role = useReasonAgainst("operator");
  const reason = role ?? (data && data.groups === 0 ? t.rebalance.noGroups : null);
  const goal = data?.unassigned ? "assign" : "slots";
  return (
    <Why reason={reason}>
      <Button
        variant={variant}
        leftSection={<Scale size={16} />}
        disabled={reason !== null}
        onClick={() => navigate(`/rebalance?goal=${goal}`)}
        data-testid="auto-rebalance"
      >
        {t.rebalance.button}
      </Button>
    </Why>
  );
}
