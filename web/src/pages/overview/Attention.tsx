import { CircleAlert, TriangleAlert } from "lucide-react";
import { Link } from "wouter";
import { useNow } from "../../api/now";
import type { Attention as Item } from "../../api/types";
import { ago } from "../../model/format";
import { t } from "../../text";
import styles from "./Overview.module.css";

export function Attention({ items }: { items: Item[] }) {
  const now = useNow();
  return (
    <section className="panel" aria-labelledby="attention">
      <div className="panel-head">
        <h2 id="attention">{t.attention.title}</h2>
        {items.length > 0 && <span className="quiet small">{items.length}</span>}
      </div>
      {items.length === 0 ? (
        <p className={`second ${styles.calm}`}>{t.attention.none}</p>
      ) : (
        <ul className={styles.attention} data-testid="attention">
          {items.map((item) => {
            const Icon = item.severity === "critical" ? CircleAlert : TriangleAlert;
            return (
              <li key={item.title} data-severity={item.severity}>
                <Icon size={18} aria-hidden />
                <div>
                  <p>
                    <span className="hidden-text">{t.attention.severity[item.severity]}: </span>
                    <strong>{item.title}</strong>
                    {item.since && (
                      <span className="quiet"> · {t.attention.since(ago(item.since, now))}</span>
                    )}
                  </p>
                  {item.detail && <p className="second">{item.detail}</p>}
                </div>
                {item.link?.startsWith("/") && <Link href={item.link}>{t.attention.open}</Link>}
              </li>
            );
          })}
        </ul>
      )}
    </section>
  );
}
