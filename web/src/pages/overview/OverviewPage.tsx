import { useSnapshot } from "../../api/data";
import { AutoRebalance } from "../../parts/AutoRebalance";
import { PageHead } from "../../parts/PageHead";
import { Partial, Region } from "../../parts/Region";
import { t } from "../../text";
import { Attention } from "./Attention";
import { Checklist } from "./Checklist";
import { InProgress } from "./InProgress";
import styles from "./Overview.module.css";
import { Strip } from "./Strip";
import { Throughput } from "./Throughput";
import { Tiles } from "./Tiles";

export function OverviewPage() {
  const query = useSnapshot((s) => s);
  return (
    <>
      <PageHead title={t.frame.places.overview}>
        <AutoRebalance />
      </PageHead>
      <Region query={query} height={480}>
        {(snapshot) => {
          if (snapshot.groups.length === 0 || snapshot.status.slots.served === 0) {
            return <Checklist snapshot={snapshot} />;
          }
          const silent = snapshot.proxies.filter((p) => p.state === "down").length;
          return (
            <div className={styles.page}>
              <Tiles snapshot={snapshot} />
              {silent > 0 && (
                <Partial>
                  {t.overview.partial(snapshot.proxies.length - silent, snapshot.proxies.length)}
                </Partial>
              )}
              <div className={styles.two}>
                <Attention items={snapshot.status.attention} />
                <InProgress operations={snapshot.status.running} />
              </div>
              <Throughput />
              <Strip proxies={snapshot.proxies} groups={snapshot.groups} />
              <footer className={styles.foot}>
                <span>
                  {t.overview.cluster} <code>{snapshot.cluster.id}</code>
                </span>
                <span>
                  {t.overview.epoch} <code>{snapshot.cluster.epoch}</code>
                </span>
                <span>
                  {t.overview.leader} <code>{snapshot.status.leader ?? t.overview.noLeader}</code>
                </span>
                <span>
                  {t.overview.version} <code>{snapshot.cluster.version}</code>
                </span>
              </footer>
            </div>
          );
        }}
      </Region>
    </>
  );
}
