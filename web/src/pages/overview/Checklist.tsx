// A new cluster: three steps instead of a page of zeros.

import { Button } from "@mantine/core";
import { Check } from "lucide-react";
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { Snapshot } from "../../api/types";
import { integer } from "../../model/format";
import { Copyable } from "../../parts/Terminal";
import { t } from "../../text";
import styles from "./Overview.module.css";

export function Checklist({ snapshot }: { snapshot: Snapshot }) {
  const hasGroup = snapshot.groups.length > 0;
  const served = snapshot.status.slots.served > 0;
  const addr = snapshot.proxies.find((p) => p.state === "serving")?.addr;
  const [host, port] = splitAddr(addr);
  const ping = `redis-cli -h ${host} -p ${port} ping`;
  return (
    <section className="panel" aria-labelledby="first-steps">
      <div className="panel-head">
        <h2 id="first-steps">{t.firstSteps.title}</h2>
      </div>
      <ol className={styles.steps}>
        <Step n={1} done={hasGroup} title={t.firstSteps.group} detail={t.firstSteps.groupDetail}>
          <Button component={Link} href="/groups/new" variant={hasGroup ? "default" : "filled"}>
            {t.groups.add}
          </Button>
        </Step>
        <Step
          n={2}
          done={served}
          title={t.firstSteps.assign}
          detail={t.firstSteps.assignDetail(integer(snapshot.cluster.slotCount), snapshot.groups.length)}
        >
          <Button
            component={Link}
            href="/rebalance?goal=assign"
            disabled={!hasGroup}
            data-disabled={!hasGroup || undefined}
          >
            {t.firstSteps.assignButton}
          </Button>
        </Step>
        <Step
          n={3}
          done={false}
          title={t.firstSteps.point}
          detail={addr ? t.firstSteps.pointDetail : t.overview.noProxy}
        >
          {addr && (
            <span className="row">
              <code>{ping}</code>
              <Copyable text={ping} />
            </span>
          )}
        </Step>
      </ol>
    </section>
  );
}

function splitAddr(addr: string | undefined): [string, string] {
  const at = addr?.lastIndexOf(":") ?? -1;
  return at < 0 ? ["127.0.0.1", "6379"] : [addr!.slice(0, at), addr!.slice(at + 1)];
}

function Step(props: { n: number; done: boolean; title: string; detail: string; children: ReactNode }) {
  return (
    <li data-done={props.done || undefined}>
      <span className={styles.stepMark}>
        {props.done ? <Check size={16} aria-label={t.firstSteps.done} /> : props.n}
      </span>
      <div>
        <h3>{props.title}</h3>
        <p className="second">{props.detail}</p>
      </div>
      {!props.done && props.children}
    </li>
  );
}
