import { Link } from "wouter";
import { PageHead } from "../parts/PageHead";
import { Empty } from "../parts/Region";
import { t } from "../text";

export function NotFoundPage() {
  return (
    <>
      <PageHead title={t.notFound.title} />
      <Empty title={t.notFound.detail}>
        <Link href="/">{t.frame.places.overview}</Link>
      </Empty>
    </>
  );
}
