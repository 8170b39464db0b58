// The first step of the wizard. Coming here with a complete goal (from the
// Auto Rebalance button, a group's Drain or a selection on the slot map) goes
// straight on to the preview: computing a plan changes nothing.

import { useEffect, useRef, useState } from "react";
import { useLocation, useSearch } from "wouter";
import { useCreatePlan, useSnapshot } from "../../api/data";
import type { Group } from "../../api/types";
import { choiceFromQuery, faultOf, type GoalChoice, requestOf } from "../../model/wizard";
import { PageHead } from "../../parts/PageHead";
import { Loading, ProblemNote, Region } from "../../parts/Region";
import { t } from "../../text";
import { GoalForm } from "./GoalForm";
import styles from "./Rebalance.module.css";
import { Steps } from "./Steps";

export function GoalPage() {
  const query = useSnapshot((s) => ({ groups: s.groups, slotCount: s.slots.slotCount }));
  return (
    <>
      <PageHead
        title={t.rebalance.title}
        sub={t.rebalance.sub}
        back={{ href: "/operations", label: t.frame.places.operations }}
      />
      <Steps at="goal" />
      <Region query={query} height={320}>
        {({ groups, slotCount }) => <Goal groups={groups} slotCount={slotCount} />}
      </Region>
    </>
  );
}

function Goal({ groups, slotCount }: { groups: Group[]; slotCount: number }) {
  const search = useSearch();
  const [, navigate] = useLocation();
  const [choice, setChoice] = useState<GoalChoice>(() => choiceFromQuery(search));
  const create = useCreatePlan();
  const fault = faultOf(choice, groups);
  const started = useRef(false);

  const preview = () =>
    create.mutate(requestOf(choice, groups), {
      onSuccess: (plan) => navigate(`/rebalance/${encodeURIComponent(plan.id)}`, { replace: true }),
    });

  // biome-ignore lint/correctness/useExhaustiveDependencies: once, for the goal the page was opened with
  useEffect(() => {
    if (started.current) return;
    started.current = true;
    if (new URLSearchParams(search).has("goal") && fault === null) preview();
  }, []);

  if (create.isPending || create.isSuccess) {
    return (
      <div className="panel panel-body stack">
        <p className="second" role="status">
          {t.plan.computing}
        </p>
        <Loading height={220} />
      </div>
    );
  }
  return (
    <div className={styles.goal}>
      <ProblemNote error={create.error} />
      <GoalForm
        choice={choice}
        onChange={setChoice}
        groups={groups}
        slotCount={slotCount}
        fault={fault}
        onSubmit={preview}
      />
    </div>
  );
}
