// The dialog before an action. Its title and its button repeat the verb and
// the object; it says what happens and what does not. Focus starts on the safe
// button. Actions that may cut service also ask for the name to be typed, and
// Enter does not carry them out.

import { Button, Modal, TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import type { Equivalent } from "../model/commands";
import { t } from "../text";
import { ProblemNote } from "./Region";
import { Terminal } from "./Terminal";

type Props = {
  opened: boolean;
  onClose: () => void;
  title: string;
  verb: string;
  children: ReactNode;
  equivalent?: Equivalent;
  typed?: string; // the name to type, for actions that are hard to undo
  danger?: boolean;
  busy?: boolean;
  blocked?: boolean;
  error?: Error | null;
  onConfirm: () => void;
  testId?: string;
};

export function Confirm(props: Props) {
  return (
    <Modal
      opened={props.opened}
      onClose={props.onClose}
      title={props.title}
      closeButtonProps={{ "aria-label": t.common.close }}
    >
      {props.opened && <Body {...props} />}
    </Modal>
  );
}

function Body(props: Props) {
  const [text, setText] = useState("");
  const ready = !props.blocked && (props.typed === undefined || text.trim() === props.typed);
  return (
    <div className="stack">
      <div className="stack second">{props.children}</div>
      {props.typed !== undefined && (
        <TextInput
          label={t.confirm.typeName(props.typed)}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          autoComplete="off"
          data-testid="confirm-name"
        />
      )}
      <ProblemNote error={props.error} />
      {props.equivalent && <Terminal equivalent={props.equivalent} />}
      <div className="row" style={{ justifyContent: "flex-end" }}>
        <Button variant="default" onClick={props.onClose} data-autofocus>
          {t.confirm.back}
        </Button>
        <Button
          color={props.danger ? "bad" : undefined}
          onClick={props.onConfirm}
          loading={props.busy}
          disabled={!ready}
          data-testid={props.testId ?? "confirm"}
        >
          {props.verb}
        </Button>
      </div>
    </div>
  );
}
