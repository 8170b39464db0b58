import { Link } from "wouter";
import { useSnapshot } from "../../api/data";
import { useNow } from "../../api/now";
import type { ProxyInfo } from "../../api/types";
import { bytes, count, duration, integer, milliseconds, percent, secondsSince } from "../../model/format";
import { byTone, proxyTone } from "../../model/states";
import { PageHead } from "../../parts/PageHead";
import { Empty, Partial, Region } from "../../parts/Region";
import { State } from "../../parts/State";
import { t } from "../../text";

export function ProxiesPage() {
  const query = useSnapshot((s) => s.proxies);
  return (
    <>
      <PageHead title={t.frame.places.proxies} sub={t.proxies.sub} />
      <Region query={query} height={240}>
        {(proxies) => {
          const silent = proxies.filter((p) => p.state === "down").length;
          const versions = new Set(proxies.map((p) => p.version).filter(Boolean));
          return (
            <div className="stack">
              {silent > 0 && <Partial>{t.overview.partial(proxies.length - silent, proxies.length)}</Partial>}
              {versions.size > 1 && <Partial>{t.proxies.skew([...versions].join(", "))}</Partial>}
              <div className="panel">
                {proxies.length === 0 ? <Empty title={t.proxies.none} /> : <Table proxies={proxies} />}
              </div>
            </div>
          );
        }}
      </Region>
    </>
  );
}

function Table({ proxies }: { proxies: ProxyInfo[] }) {
  const c = t.proxies.columns;
  return (
    <div className="table-scroll">
      <table className="table cards">
        <caption className="hidden-text">{t.frame.places.proxies}</caption>
        <thead>
          <tr>
            <th scope="col">{c.name}</th>
            <th scope="col">{c.state}</th>
            <th scope="col" className="num">
              {c.clients}
            </th>
            <th scope="col" className="num">
              {c.ops}
            </th>
            <th scope="col" className="num">
              {c.p50}
            </th>
            <th scope="col" className="num">
              {c.p99}
            </th>
            <th scope="col" className="num">
              {c.epoch}
            </th>
            <th scope="col" className="num">
              {c.cpu}
            </th>
            <th scope="col" className="num">
              {c.memory}
            </th>
            <th scope="col">{c.version}</th>
            <th scope="col" className="num">
              {c.uptime}
            </th>
          </tr>
        </thead>
        <tbody>
          {proxies
            .toSorted(
              byTone(
                (p) => proxyTone(p.state),
                (p) => p.id,
              ),
            )
            .map((p) => (
              <Row key={p.id} proxy={p} />
            ))}
        </tbody>
      </table>
    </div>
  );
}

const problemOf = (p: ProxyInfo): string =>
  p.unreachable?.length ? t.proxies.unreachable(p.unreachable.join(", ")) : (p.problem ?? "");

function Row({ proxy: p }: { proxy: ProxyInfo }) {
  const c = t.proxies.columns;
  const now = useNow();
  return (
    <tr data-testid={`proxy-row-${p.id}`} data-state={p.state} data-epoch={p.appliedEpoch}>
      <td data-label={c.name}>
        <span>
          <Link href={`/proxies/${encodeURIComponent(p.id)}`}>{p.id}</Link>{" "}
          <code className="quiet">{p.addr}</code>
        </span>
      </td>
      <td data-label={c.state}>
        <State tone={proxyTone(p.state)}>{t.proxyState[p.state] ?? p.state}</State>
        {problemOf(p) && <span className="quiet"> {problemOf(p)}</span>}
      </td>
      <td data-label={c.clients} className="num">
        {integer(p.clients)}
      </td>
      <td data-label={c.ops} className="num">
        {count(p.opsPerSecond)}
      </td>
      <td data-label={c.p50} className="num">
        {milliseconds(p.p50Ms)}
      </td>
      <td data-label={c.p99} className="num">
        {milliseconds(p.p99Ms)}
      </td>
      <td data-label={c.epoch} className="num">
        {p.appliedEpoch}{" "}
        <span className={p.epochLag > 0 ? undefined : "quiet"}>{t.proxies.lag(p.epochLag)}</span>
      </td>
      <td data-label={c.cpu} className="num">
        {percent((p.cpuPercent ?? 0) / 100)}
      </td>
      <td data-label={c.memory} className="num">
        {bytes(p.memoryBytes)}
      </td>
      <td data-label={c.version}>{p.version}</td>
      <td data-label={c.uptime} className="num">
        {p.state === "down" ? "" : duration(secondsSince(p.startedAt, now))}
      </td>
    </tr>
  );
}
