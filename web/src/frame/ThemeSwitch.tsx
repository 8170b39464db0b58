import { ActionIcon, Menu, useMantineColorScheme } from "@mantine/core";
import { Check, Monitor, Moon, Sun } from "lucide-react";
import { t } from "../text";

const choices = [
  { id: "auto", icon: Monitor },
  { id: "light", icon: Sun },
  { id: "dark", icon: Moon },
] as const;

export function ThemeSwitch() {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const Now = choices.find((c) => c.id === colorScheme)?.icon ?? Monitor;
  return (
    <Menu position="bottom-end" width={170}>
      <Menu.Target>
        <ActionIcon variant="subtle" size={32} aria-label={t.theme.label} data-testid="theme">
          <Now size={17} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {choices.map(({ id, icon: Icon }) => (
          <Menu.Item
            key={id}
            leftSection={<Icon size={15} />}
            rightSection={colorScheme === id ? <Check size={14} /> : null}
            onClick={() => setColorScheme(id)}
            data-testid={`theme-${id}`}
          >
            {t.theme[id]}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
