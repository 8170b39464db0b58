// The same action as a command and as a request, folded away, with a copy
// button each.

import { ActionIcon, CopyButton, Tooltip } from "@mantine/core";
import { Check, Copy } from "lucide-react";
import type { Equivalent } from "../model/commands";
import { t } from "../text";
import styles from "./parts.module.css";

export function Terminal({ equivalent }: { equivalent: Equivalent }) {
  return (
    <details className={styles.terminal}>
      <summary>{t.terminal.title}</summary>
      <Line text={equivalent.cli} />
      <Line text={equivalent.curl} />
    </details>
  );
}

function Line({ text }: { text: string }) {
  return (
    <div className={styles.terminalLine}>
      <pre>{text}</pre>
      <Copyable text={text} />
    </div>
  );
}

export function Copyable({ text }: { text: string }) {
  return (
    <CopyButton value={text}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? t.terminal.copied : t.terminal.copy}>
          <ActionIcon variant="subtle" size={26} onClick={copy} aria-label={t.terminal.copy}>
            {copied ? <Check size={15} /> : <Copy size={15} />}
          </ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
  );
}
