import { Button } from "@mantine/core";
import { Plus } from "lucide-react";
import { Link } from "wouter";
import { useSnapshot } from "../../api/data";
import { byTone, groupTone } from "../../model/states";
import { PageHead } from "../../parts/PageHead";
import { Empty, Region } from "../../parts/Region";
import { useReasonAgainst, Why } from "../../parts/role";
import { t } from "../../text";
import { GroupCard } from "./GroupCard";
import styles from "./Groups.module.css";

export function GroupsPage() {
  const query = useSnapshot((s) => ({ groups: s.groups, slotCount: s.slots.slotCount }));
  const reason = useReasonAgainst("operator");
  return (
    <>
      <PageHead title={t.frame.places.groups} sub={t.groups.sub}>
        <Why reason={reason}>
          <Button
            component={Link}
            href="/groups/new"
            variant="default"
            leftSection={<Plus size={16} />}
            disabled={reason !== null}
            data-disabled={reason !== null || undefined}
            data-testid="group-add"
          >
            {t.groups.add}
          </Button>
        </Why>
      </PageHead>
      <Region query={query} height={320}>
        {({ groups, slotCount }) =>
          groups.length === 0 ? (
            <div className="panel">
              <Empty title={t.groups.none}>
                <Button component={Link} href="/groups/new">
                  {t.groups.add}
                </Button>
              </Empty>
            </div>
          ) : (
            <div className={styles.cards}>
              {groups
                .toSorted(
                  byTone(
                    (g) => groupTone(g.state),
                    (g) => g.id,
                  ),
                )
                .map((g) => (
                  <GroupCard key={g.id} group={g} slotCount={slotCount} />
                ))}
            </div>
          )
        }
      </Region>
    </>
  );
}
