// "Where is my key?" and "show me slots 0-99", in one field.

import { Button, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Search } from "lucide-react";
import { type FormEvent, useState } from "react";
import { lookUpKey } from "../../api/data";
import type { SlotLookup } from "../../api/types";
import { parseRanges, type Range } from "../../model/ranges";
import { Fact } from "../../parts/figures";
import { GroupMark } from "../../parts/groups";
import { ProblemNote } from "../../parts/Region";
import { t } from "../../text";
import styles from "./Slots.module.css";

type Props = { slotCount: number; onSlots: (ranges: Range[]) => void; onKey: (found: SlotLookup) => void };

export function Finder({ slotCount, onSlots, onKey }: Props) {
  const [text, setText] = useState("");
  const lookup = useMutation({ mutationFn: lookUpKey, onSuccess: onKey });
  const asSlots = /^[\d\s,;–-]+$/.test(text) ? parseRanges(text, slotCount) : null;

  const findKey = () => {
    if (text) lookup.mutate(text);
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (asSlots?.ranges) onSlots(asSlots.ranges);
    else findKey();
  };

  return (
    <form onSubmit={submit} className={styles.finder}>
      <TextInput
        label={t.slots.find}
        description={t.slots.findHint}
        placeholder="user:{42}:cart"
        leftSection={<Search size={15} aria-hidden />}
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value);
          lookup.reset();
        }}
        error={asSlots?.error && text.trim() ? t.rangeFault(asSlots.error) : undefined}
        autoComplete="off"
        spellCheck={false}
        data-testid="slot-find"
      />
      <div className="row">
        {asSlots?.ranges && (
          <Button type="submit" size="xs" variant="default">
            {t.slots.selectThese}
          </Button>
        )}
        {text && (
          <Button
            type={asSlots?.ranges ? "button" : "submit"}
            size="xs"
            variant="default"
            loading={lookup.isPending}
            onClick={asSlots?.ranges ? findKey : undefined}
          >
            {t.slots.findKey}
          </Button>
        )}
      </div>
      <ProblemNote error={lookup.error} />
      {lookup.data && (
        <dl className={styles.found} data-testid="slot-found">
          <Fact label={t.slots.slot}>{lookup.data.slot}</Fact>
          <Fact label={t.slots.group}>
            <GroupMark id={lookup.data.group} />
          </Fact>
          <Fact label={t.slots.tag}>
            <code>{lookup.data.tag}</code>
          </Fact>
          <Fact label={t.slots.master}>
            <code>{lookup.data.master}</code>
          </Fact>
        </dl>
      )}
    </form>
  );
}
