// The preview: exactly these moves are made, or none. A plan is stored by the
// server, so this page can be linked, read by a second person, and started
// later; if the topology has moved on, the only way is to compute it anew. The
// page is its own confirmation: its button repeats verb and object beside what
// will happen, so no dialog asks once more.

import { Button } from "@mantine/core";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { Problem } from "../../api/client";
import { useCreatePlan, usePlan, useSnapshot, useStartOperation } from "../../api/data";
import { useNow } from "../../api/now";
import type { Plan } from "../../api/types";
import { equivalents } from "../../model/commands";
import { bytesRate, estimate, integer } from "../../model/format";
import { choiceOfPlan, queryFor, requestOf, type Speed, speeds, standingOf } from "../../model/wizard";
import { Checks } from "../../parts/Checks";
import { PageHead } from "../../parts/PageHead";
import { ProblemNote, Region } from "../../parts/Region";
import { useReasonAgainst, Why } from "../../parts/role";
import { Terminal } from "../../parts/Terminal";
import { t } from "../../text";
import { BeforeAfter } from "./BeforeAfter";
import { PlanMoves } from "./PlanMoves";
import styles from "./Rebalance.module.css";
import { SpeedChoice } from "./SpeedChoice";
import { Steps } from "./Steps";

export function PlanPage({ id }: { id: string }) {
  const query = usePlan(id);
  return (
    <>
      <PageHead
        title={query.data ? (t.goal[query.data.goal]?.title ?? t.rebalance.title) : t.rebalance.title}
        sub={t.plan.sub}
        back={{ href: "/rebalance", label: t.plan.changeGoal }}
      />
      <Steps at="preview" />
      <Region query={query} height={420}>
        {(plan) => <Preview plan={plan} />}
      </Region>
    </>
  );
}

function Preview({ plan }: { plan: Plan }) {
  const [, navigate] = useLocation();
  const [speed, setSpeed] = useState<Speed>("full");
  const start = useStartOperation();
  const now = useNow();
  const refused = start.error instanceof Problem && start.error.code === "plan-stale";
  const standing = standingOf(plan, refused, now);
  const role = useReasonAgainst("operator");
  const limit = speeds[speed];
  const slots = integer(plan.estimate.slots);
  const verb = plan.goal === "assign" ? t.plan.assign(slots) : t.plan.move(slots);

  const run = () =>
    start.mutate(
      { plan: plan.id, ...(limit ? { limits: { bytesPerSecond: limit } } : {}) },
      {
        onSuccess: (operation) => navigate(`/operations/${operation.id}`),
      },
    );

  return (
    <div className={styles.plan}>
      <section className="panel panel-body stack">
        <div className={styles.summary} data-testid="plan-summary">
          <p className={styles.headline}>{plan.summary}</p>
          {plan.moves.length > 0 && <p className="second">{facts(plan, limit)}</p>}
        </div>
        {standing === "ready" && (
          <p className="second">{plan.goal === "assign" ? t.plan.confirmAssign : t.plan.confirmEffect}</p>
        )}
        {standing === "stale" || standing === "expired" ? (
          <Stale plan={plan} problem={start.error} />
        ) : (
          <ProblemNote error={start.error} />
        )}
        {standing === "blocked" && <p className={styles.note}>{t.plan.blocked}</p>}
        <div className={styles.startRow}>
          {standing === "ready" && plan.goal !== "assign" && (
            <SpeedChoice value={speed} onChange={setSpeed} />
          )}
          {standing === "empty" ? (
            <Button component={Link} href="/operations" variant="default">
              {t.plan.nothing}
            </Button>
          ) : (
            standing !== "stale" &&
            standing !== "expired" && (
              <Why reason={role ?? (standing === "blocked" ? t.plan.blocked : null)}>
                <Button
                  size="md"
                  disabled={role !== null || standing !== "ready"}
                  onClick={run}
                  loading={start.isPending}
                  data-testid="plan-start"
                >
                  {verb}
                </Button>
              </Why>
            )
          )}
        </div>
        {standing === "ready" && <Terminal equivalent={equivalents.runPlan(plan.id, limit)} />}
      </section>

      <BeforeAfter before={plan.before} after={plan.after} />
      {plan.checks.length > 0 && (
        <section className="panel" aria-labelledby="checks">
          <div className="panel-head">
            <h2 id="checks">{t.plan.checks}</h2>
          </div>
          <div className="panel-body">
            <Checks items={plan.checks} />
          </div>
        </section>
      )}
      {plan.moves.length > 0 && <PlanMoves moves={plan.moves} />}
    </div>
  );
}

/** What the server's sentence can not know: the effect of the chosen speed. */
function facts(plan: Plan, limit: number | undefined): string {
  if (plan.goal === "assign") return "";
  const seconds = limit ? Math.max(plan.estimate.seconds ?? 0, plan.estimate.bytes / limit) : null;
  return [seconds ? t.plan.takes(bytesRate(limit), estimate(seconds)) : "", t.plan.latency]
    .filter(Boolean)
    .join(" ");
}

function Stale({ plan, problem }: { plan: Plan; problem: Error | null }) {
  const [, navigate] = useLocation();
  const { data: groups = [] } = useSnapshot((s) => s.groups);
  const create = useCreatePlan();
  const choice = choiceOfPlan(plan);
  const again = () => {
    // What a drain was asked for can not be told from a plan without moves.
    if (choice.goal === "drain" && choice.drain.length === 0)
      return navigate(`/rebalance?${queryFor(choice)}`);
    create.mutate(requestOf(choice, groups), {
      onSuccess: (next) => navigate(`/rebalance/${encodeURIComponent(next.id)}`, { replace: true }),
    });
  };
  return (
    <div className={styles.stale} role="alert" data-testid="plan-stale">
      <div>
        <strong>{t.plan.stale}</strong>
        <p className="second">
          {problem instanceof Problem && problem.detail ? problem.detail : t.plan.expired}
        </p>
        <ProblemNote error={create.error} />
      </div>
      <Button onClick={again} loading={create.isPending} data-testid="plan-recompute">
        {t.plan.recompute}
      </Button>
    </div>
  );
}
