// Adding a group: addresses, a probe of each node, then the summary. Nothing
// is stored before the probe passed.

import { Button, PasswordInput, Radio, Textarea, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { useLocation } from "wouter";
import { useCreateGroup, useProbe, useSnapshot } from "../../api/data";
import type { Probe } from "../../api/types";
import { goodGroupId, readAddresses, suggestGroupId } from "../../model/addresses";
import { equivalents } from "../../model/commands";
import { Checks } from "../../parts/Checks";
import { PageHead } from "../../parts/PageHead";
import { ProblemNote } from "../../parts/Region";
import { useReasonAgainst, Why } from "../../parts/role";
import { Terminal } from "../../parts/Terminal";
import { t } from "../../text";
import styles from "./Groups.module.css";

export function AddGroupPage() {
  const { data: ids = [] } = useSnapshot((s) => s.groups.map((g) => g.id));
  const [, navigate] = useLocation();
  const [id, setId] = useState<string | null>(null);
  const [text, setText] = useState("");
  const [password, setPassword] = useState("");
  const [master, setMaster] = useState("");
  const probe = useProbe();
  const create = useCreateGroup();
  const role = useReasonAgainst("operator");

  const name = id ?? suggestGroupId(ids);
  const { addresses, faults } = readAddresses(text);
  const first = addresses.includes(master) ? master : addresses[0];
  const probed = probe.isSuccess ? probe.data : null;
  const nameFault = !goodGroupId(name)
    ? t.addGroup.badName
    : ids.includes(name)
      ? t.addGroup.taken(name)
      : undefined;
  const noProbe =
    role ??
    (nameFault ||
      (addresses.length === 0 ? t.addGroup.noAddress : faults[0] ? t.groups.badAddress(faults[0]) : null));
  const noCreate =
    role ??
    nameFault ??
    (probed ? (probed.every((p) => p.ok) ? null : t.addGroup.probeFailed) : t.addGroup.probeFirst);

  const edit = (change: () => void) => {
    change();
    probe.reset();
    create.reset();
  };
  const submitProbe = (event: FormEvent) => {
    event.preventDefault();
    if (noProbe === null) probe.mutate({ nodes: addresses.map((addr) => ({ addr })), password });
  };
  const submit = () =>
    create.mutate(
      {
        id: name,
        nodes: addresses.map((addr) => ({ addr, role: addr === first ? "master" : "replica" })),
        password,
      },
      { onSuccess: (operation) => navigate(`/operations/${operation.id}`) },
    );

  return (
    <>
      <PageHead
        title={t.groups.add}
        sub={t.addGroup.sub}
        back={{ href: "/groups", label: t.frame.places.groups }}
      />
      <div className={styles.wizard}>
        <form className="panel panel-body stack" onSubmit={submitProbe}>
          <h2>{t.addGroup.nodesStep}</h2>
          <TextInput
            label={t.addGroup.name}
            value={name}
            onChange={(event) => setId(event.currentTarget.value)}
            error={nameFault}
            maw={220}
            data-testid="add-group-id"
          />
          <Textarea
            label={t.addGroup.addresses}
            description={t.addGroup.addressesHint}
            placeholder={"10.0.0.21:6379\n10.0.0.22:6379"}
            minRows={3}
            rows={Math.min(8, Math.max(3, text.split("\n").length))}
            value={text}
            onChange={(event) => {
              const value = event.currentTarget.value;
              edit(() => setText(value));
            }}
            error={faults.length ? t.groups.badAddress(faults[0]!) : undefined}
            spellCheck={false}
            classNames={{ input: "mono" }}
            data-testid="add-group-nodes"
          />
          <PasswordInput
            label={t.addGroup.password}
            description={t.addGroup.passwordHint}
            value={password}
            onChange={(event) => {
              const value = event.currentTarget.value;
              edit(() => setPassword(value));
            }}
            autoComplete="off"
            data-testid="add-group-password"
          />
          <div>
            <Why reason={noProbe}>
              <Button
                type="submit"
                variant={probed ? "default" : "filled"}
                disabled={noProbe !== null}
                loading={probe.isPending}
                data-testid="add-group-probe"
              >
                {probed ? t.addGroup.probeAgain : t.addGroup.probe}
              </Button>
            </Why>
          </div>
          <ProblemNote error={probe.error} />
        </form>

        {probed && (
          <section className="panel panel-body stack" aria-live="polite">
            <h2>{t.addGroup.probeStep}</h2>
            <Probes probes={probed} />
            <Radio.Group label={t.addGroup.whichMaster} value={first ?? ""} onChange={setMaster}>
              <div className={styles.masters}>
                {addresses.map((addr) => (
                  <Radio key={addr} value={addr} label={<code>{addr}</code>} />
                ))}
              </div>
            </Radio.Group>
            <p className="second">{t.addGroup.summary(name, addresses.length - 1)}</p>
            <ProblemNote error={create.error} />
            <Terminal equivalent={equivalents.createGroup(name, addresses)} />
            <div>
              <Why reason={noCreate}>
                <Button
                  disabled={noCreate !== null}
                  loading={create.isPending}
                  onClick={submit}
                  data-testid="add-group-submit"
                >
                  {t.addGroup.submit(name)}
                </Button>
              </Why>
            </div>
          </section>
        )}
      </div>
    </>
  );
}

function Probes({ probes }: { probes: Probe[] }) {
  return (
    <ul className="stack">
      {probes.map((probe) => (
        <li key={probe.addr} data-testid={`probe-${probe.addr}`} data-ok={probe.ok}>
          <h3>
            <code>{probe.addr}</code>{" "}
            <span className="quiet">{probe.ok ? t.addGroup.usable : t.addGroup.notUsable}</span>
          </h3>
          <Checks items={probe.checks} />
        </li>
      ))}
    </ul>
  );
}
