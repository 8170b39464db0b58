import { ArrowLeft } from "lucide-react";
import { type ReactNode, useEffect } from "react";
import { Link } from "wouter";
import { t } from "../text";
import styles from "./parts.module.css";

export function PageHead({
  title,
  sub,
  back,
  children,
}: {
  title: string;
  sub?: ReactNode;
  back?: { href: string; label: string };
  children?: ReactNode;
}) {
  useEffect(() => {
    document.title = t.app.title(title);
  }, [title]);
  return (
    <header className={styles.pageHead}>
      <div>
        {back && (
          <Link href={back.href} className={styles.back}>
            <ArrowLeft size={14} aria-hidden /> {back.label}
          </Link>
        )}
        <h1>{title}</h1>
        {sub && <p className="second">{sub}</p>}
      </div>
      {children && <div className="row">{children}</div>}
    </header>
  );
}
