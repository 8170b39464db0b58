// The frame around every page: rail, the sentence that answers "is it OK, is
// anything moving, must I act", and whether the page is live.

import { ArrowRightLeft, Blocks, ChartNoAxesColumn, Grid3x3, Waypoints } from "lucide-react";
import type { ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { useSnapshot } from "../api/data";
import { ageOf, useLive } from "../api/live";
import { useNow } from "../api/now";
import { clock } from "../model/format";
import { t } from "../text";
import { Account } from "./Account";
import styles from "./Frame.module.css";
import { LiveSign } from "./LiveSign";
import { Logo } from "./Logo";
import { ThemeSwitch } from "./ThemeSwitch";

const places = [
  { id: "overview", href: "/", icon: ChartNoAxesColumn },
  { id: "slots", href: "/slots", icon: Grid3x3 },
  { id: "groups", href: "/groups", icon: Blocks },
  { id: "proxies", href: "/proxies", icon: Waypoints },
  { id: "operations", href: "/operations", icon: ArrowRightLeft },
] as const;

const isHere = (href: string, location: string): boolean =>
  href === "/"
    ? location === "/"
    : location.startsWith(href) || (href === "/operations" && location.startsWith("/rebalance"));

export function Frame({ children }: { children: ReactNode }) {
  return (
    <div className={styles.frame}>
      <a href="#content" className={styles.skip}>
        {t.frame.skip}
      </a>
      <Rail />
      <div className={styles.column}>
        <header className={styles.top}>
          <Sentence />
          <LiveSign />
          <ThemeSwitch />
          <Account />
        </header>
        <Content>{children}</Content>
      </div>
    </div>
  );
}

function Rail() {
  const [location] = useLocation();
  const { data } = useSnapshot((s) => ({
    name: s.cluster.name,
    scheme: s.cluster.scheme,
    running: s.status.running.length,
  }));
  return (
    <nav className={styles.rail} aria-label={t.frame.navigation}>
      <div className={styles.railInner}>
        <div className={styles.brand}>
          <Logo />
          <span>
            <strong>{t.app.name}</strong>
            <small>{data?.name}</small>
          </span>
        </div>
        <ul>
          {places.map(({ id, href, icon: Icon }) => (
            <li key={id}>
              <Link
                href={href}
                className={styles.place}
                aria-current={isHere(href, location) ? "page" : undefined}
                data-testid={`nav-${id}`}
              >
                <Icon size={18} aria-hidden />
                <span>{t.frame.places[id]}</span>
                {id === "operations" && !!data?.running && (
                  <span className={styles.count}>
                    {data.running}
                    <span className="hidden-text"> {t.frame.running}</span>
                  </span>
                )}
              </Link>
            </li>
          ))}
        </ul>
        <p className={styles.scheme}>
          <code>{data?.scheme}</code>
        </p>
      </div>
    </nav>
  );
}

function Sentence() {
  const { data } = useSnapshot((s) => ({ summary: s.status.summary, health: s.status.health }));
  return (
    <p className={styles.sentence} data-health={data?.health ?? "ok"} data-testid="status-sentence">
      {data && data.health !== "ok" && <span className={styles.healthSign}>{t.health[data.health]}</span>}
      {data?.summary ?? ""}
    </p>
  );
}

/** Old data is dimmed and then named as old; it is never passed off as now. */
function Content({ children }: { children: ReactNode }) {
  const live = useLive();
  const age = ageOf(live, useNow());
  return (
    <main id="content" tabIndex={-1} className={styles.content} data-age={age}>
      {age !== "fresh" && live.lastAt !== null && (
        <p className={styles.age} role="status">
          {age === "stale" ? t.live.staleSince(clock(live.lastAt)) : t.live.noDataSince(clock(live.lastAt))}
        </p>
      )}
      {children}
    </main>
  );
}
