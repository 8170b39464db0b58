// A region of data in each of the states it can be in: loading, empty,
// partial, error, or there. Age is shown by the frame, since all regions hang
// on one stream.

import { Button } from "@mantine/core";
import { CircleAlert } from "lucide-react";
import { type ReactNode, useEffect, useState } from "react";
import { Problem } from "../api/client";
import { t } from "../text";
import styles from "./parts.module.css";

type Query<T> = {
  data: T | undefined;
  error: Error | null;
  isPending: boolean;
  refetch: () => unknown;
};

export function Region<T>({
  query,
  height = 160,
  children,
}: {
  query: Query<T>;
  height?: number;
  children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  if (query.error) return <Failure error={query.error} retry={() => void query.refetch()} />;
  return <Loading height={height} />;
}

/** A bar of the coming height, shown only when the wait is noticeable. */
export function Loading({ height }: { height: number }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className={late ? styles.skeleton : undefined} style={{ height }} role="status">
      <span className="hidden-text">{t.common.loading}</span>
    </div>
  );
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  return (
    <div className="stack">
      <ProblemNote error={error} />
      {retry && (
        <div>
          <Button variant="default" onClick={retry}>
            {t.common.retry}
          </Button>
        </div>
      )}
    </div>
  );
}

/** What failed, why, what to do, and the id to find it in the log by. */
export function ProblemNote({ error }: { error: Error | null | undefined }) {
  if (!error) return null;
  const problem = error instanceof Problem ? error : null;
  const title = problem?.title || t.common.failed;
  const detail = problem ? problem.detail : error.message;
  return (
    <div className={styles.problem} role="alert">
      <CircleAlert size={18} aria-hidden />
      <div>
        <strong>{title}</strong>
        {detail && detail !== title && <p>{detail}</p>}
        {problem?.errors.map((each) => (
          <p key={`${each.pointer}${each.detail}`}>
            {each.pointer && <code>{each.pointer}</code>} {each.detail}
          </p>
        ))}
        {problem?.hint && <p>{problem.hint}</p>}
        {problem?.instance && (
          <p className={styles.problemId}>
            {t.common.requestId} <code>{problem.instance}</code>
          </p>
        )}
      </div>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className={styles.empty}>
      <p>{title}</p>
      {children && <div className="row">{children}</div>}
    </div>
  );
}

export function Partial({ children }: { children: ReactNode }) {
  return (
    <p className={styles.partial} role="status">
      <CircleAlert size={15} aria-hidden /> {children}
    </p>
  );
}
