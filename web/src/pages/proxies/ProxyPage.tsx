import { useProxy, useSnapshot } from "../../api/data";
import type { ProxyDetail } from "../../api/types";
import { bytes, count, integer, milliseconds, percent, ratePerSecond } from "../../model/format";
import { proxyTone } from "../../model/states";
import { Fact } from "../../parts/figures";
import { GroupMark } from "../../parts/groups";
import { PageHead } from "../../parts/PageHead";
import { RangeText } from "../../parts/RangeText";
import { Partial, Region } from "../../parts/Region";
import { State } from "../../parts/State";
import { t } from "../../text";
import styles from "./Proxies.module.css";

export function ProxyPage({ id }: { id: string }) {
  const query = useProxy(id);
  // Figures that the stream carries are fresher than the fetched details.
  const { data: live } = useSnapshot((s) => s.proxies.find((p) => p.id === id));
  const epoch = useSnapshot((s) => s.cluster.epoch).data;
  return (
    <>
      <PageHead
        title={id}
        sub={query.data?.addr}
        back={{ href: "/proxies", label: t.frame.places.proxies }}
      />
      <Region query={query} height={320}>
        {(detail) => <Details proxy={{ ...detail, ...live }} epoch={epoch} />}
      </Region>
    </>
  );
}

function Details({ proxy: p, epoch }: { proxy: ProxyDetail; epoch: number | undefined }) {
  const ops = ratePerSecond(p.opsPerSecond);
  const c = t.proxies.columns;
  return (
    <div className="stack">
      <section className="panel panel-body stack">
        <State tone={proxyTone(p.state)}>{t.proxyState[p.state] ?? p.state}</State>
        <dl className={styles.figures}>
          <Fact label={c.ops}>
            {ops.value} {ops.unit}
          </Fact>
          <Fact label={c.clients}>{integer(p.clients)}</Fact>
          <Fact label={c.p50}>{milliseconds(p.p50Ms)}</Fact>
          <Fact label={c.p99}>{milliseconds(p.p99Ms)}</Fact>
          <Fact label={c.cpu}>{percent((p.cpuPercent ?? 0) / 100)}</Fact>
          <Fact label={c.memory}>{bytes(p.memoryBytes)}</Fact>
          <Fact label={c.epoch}>
            {p.appliedEpoch} <span className="quiet">{t.proxies.lag(p.epochLag)}</span>
          </Fact>
          <Fact label={c.version}>{p.version}</Fact>
          <Fact label={t.proxies.pid}>{p.pid}</Fact>
        </dl>
      </section>
      {!p.table && !p.backends && p.state !== "down" && <Partial>{t.proxies.noAdmin}</Partial>}
      {p.backends && <Backends backends={p.backends} />}
      {p.commands && <Commands commands={p.commands} />}
      {p.table && <RouteTable table={p.table} behind={epoch !== undefined && p.table.epoch < epoch} />}
    </div>
  );
}

function Backends({ backends }: { backends: NonNullable<ProxyDetail["backends"]> }) {
  const c = t.proxies.backend;
  return (
    <section className="panel" aria-labelledby="backends">
      <div className="panel-head">
        <h2 id="backends">{t.proxies.backends}</h2>
      </div>
      <table className="table cards">
        <caption className="hidden-text">{t.proxies.backends}</caption>
        <thead>
          <tr>
            <th scope="col">{c.node}</th>
            <th scope="col">{c.group}</th>
            <th scope="col">{c.state}</th>
            <th scope="col" className="num">
              {c.connections}
            </th>
            <th scope="col" className="num">
              {c.inflight}
            </th>
            <th scope="col" className="num">
              {c.requests}
            </th>
          </tr>
        </thead>
        <tbody>
          {backends.map((b) => (
            <tr key={b.node}>
              <td data-label={c.node}>
                <code>{b.node}</code>
              </td>
              <td data-label={c.group}>
                <GroupMark id={b.group} />
              </td>
              <td data-label={c.state}>
                <State tone={b.state === "connected" ? "neutral" : b.state === "down" ? "bad" : "active"}>
                  {t.proxies.backendState[b.state as keyof typeof t.proxies.backendState] ?? b.state}
                </State>
                {b.error && <span className="quiet"> {b.error}</span>}
              </td>
              <td data-label={c.connections} className="num">
                {integer(b.connections)}
              </td>
              <td data-label={c.inflight} className="num">
                {integer(b.inflight)}
              </td>
              <td data-label={c.requests} className="num">
                {count(b.requests)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Commands({ commands }: { commands: NonNullable<ProxyDetail["commands"]> }) {
  const c = t.proxies.command;
  return (
    <section className="panel" aria-labelledby="commands">
      <div className="panel-head">
        <h2 id="commands">{t.proxies.commands}</h2>
      </div>
      <div className="table-scroll">
        <table className="table">
          <caption className="hidden-text">{t.proxies.commands}</caption>
          <thead>
            <tr>
              <th scope="col">{c.name}</th>
              <th scope="col" className="num">
                {c.calls}
              </th>
              <th scope="col" className="num">
                {c.errors}
              </th>
            </tr>
          </thead>
          <tbody>
            {commands
              .toSorted((a, b) => b.calls - a.calls)
              .map((row) => (
                <tr key={row.name}>
                  <td className="mono">{row.name.toUpperCase()}</td>
                  <td className="num">{count(row.calls)}</td>
                  <td className="num">{count(row.errors)}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function RouteTable({ table, behind }: { table: NonNullable<ProxyDetail["table"]>; behind: boolean }) {
  return (
    <section className="panel" aria-labelledby="table">
      <div className="panel-head">
        <h2 id="table">{t.proxies.table}</h2>
        <span className="quiet small">
          {t.proxies.tableEpoch(table.epoch)}
          {behind && ` · ${t.proxies.tableBehind}`}
        </span>
      </div>
      <div className="table-scroll">
        <table className="table cards">
          <caption className="hidden-text">{t.proxies.table}</caption>
          <thead>
            <tr>
              <th scope="col">{t.slots.slotsColumn}</th>
              <th scope="col">{t.slots.group}</th>
              <th scope="col">{t.slots.master}</th>
            </tr>
          </thead>
          <tbody>
            {table.items.map((run) => (
              <tr key={run.slots}>
                <td data-label={t.slots.slotsColumn}>
                  <RangeText slots={run.slots} />
                </td>
                <td data-label={t.slots.group}>
                  <GroupMark id={run.group} />
                </td>
                <td data-label={t.slots.master}>
                  <code>{run.node}</code> {run.held && <span className="quiet">{t.slotState.held}</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
