import { Button, Checkbox, NativeSelect, Radio, TextInput } from "@mantine/core";
import type { FormEvent } from "react";
import type { Goal, Group } from "../../api/types";
import { integer } from "../../model/format";
import { formatRanges, parseRanges } from "../../model/ranges";
import type { Fault, GoalChoice } from "../../model/wizard";
import { GroupMark } from "../../parts/groups";
import { useReasonAgainst, Why } from "../../parts/role";
import { t } from "../../text";
import styles from "./Rebalance.module.css";

const goals: Goal[] = ["slots", "drain", "move", "assign"];

type Props = {
  choice: GoalChoice;
  onChange: (choice: GoalChoice) => void;
  groups: Group[];
  slotCount: number;
  fault: Fault;
  onSubmit: () => void;
};

export function GoalForm({ choice, onChange, groups, slotCount, fault, onSubmit }: Props) {
  const parsed = choice.goal === "move" && choice.slots ? parseRanges(choice.slots, slotCount) : null;
  const role = useReasonAgainst("operator");
  const reason = role ?? (fault ? t.wizardFault[fault] : parsed?.error ? t.rangeFault(parsed.error) : null);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (reason === null) onSubmit();
  };

  return (
    <form className="panel panel-body stack" onSubmit={submit}>
      <Radio.Group
        value={choice.goal}
        onChange={(goal) => onChange({ ...choice, goal: goal as Goal })}
        label={t.rebalance.chooseGoal}
      >
        <div className={styles.goals}>
          {goals.map((goal) => (
            <Radio
              key={goal}
              value={goal}
              label={t.goal[goal].name}
              description={t.goal[goal].detail}
              data-testid={`goal-${goal}`}
            />
          ))}
        </div>
      </Radio.Group>

      {choice.goal === "drain" && (
        <Checkbox.Group
          label={t.rebalance.whichDrain}
          value={choice.drain}
          onChange={(drain) => onChange({ ...choice, drain })}
        >
          <div className={styles.pick}>
            {groups.map((g) => (
              <Checkbox
                key={g.id}
                value={g.id}
                disabled={g.slotCount === 0}
                label={
                  <span className="row">
                    <GroupMark id={g.id} />{" "}
                    <span className="quiet">{t.slots.count(integer(g.slotCount))}</span>
                  </span>
                }
              />
            ))}
          </div>
        </Checkbox.Group>
      )}

      {choice.goal === "move" && (
        <div className={styles.fields}>
          <TextInput
            label={t.rebalance.whichSlots}
            placeholder="0-99,512"
            value={choice.slots}
            onChange={(event) => onChange({ ...choice, slots: event.currentTarget.value })}
            onBlur={() => parsed?.ranges && onChange({ ...choice, slots: formatRanges(parsed.ranges) })}
            error={parsed?.error ? t.rangeFault(parsed.error) : undefined}
            data-testid="goal-move-slots"
          />
          <NativeSelect
            label={t.rebalance.toWhich}
            value={choice.toGroup}
            onChange={(event) => onChange({ ...choice, toGroup: event.currentTarget.value })}
            data={[
              { value: "", label: t.slots.targetChoose },
              ...groups.map((g) => ({ value: g.id, label: g.id })),
            ]}
            data-testid="goal-move-to"
          />
        </div>
      )}

      <div>
        <Why reason={reason}>
          <Button type="submit" disabled={reason !== null} data-testid="plan-create">
            {t.rebalance.preview}
          </Button>
        </Why>
      </div>
    </form>
  );
}
