import { ActionIcon, Menu } from "@mantine/core";
import { BookOpen, CircleUser, LogOut } from "lucide-react";
import { useLogout } from "../api/data";
import { usePerson } from "../parts/role";
import { t } from "../text";

export function Account() {
  const person = usePerson();
  const logout = useLogout();
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <ActionIcon
          variant="subtle"
          size={32}
          aria-label={t.account.label(person.name)}
          data-testid="account"
        >
          <CircleUser size={18} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          {person.name} · {t.roles[person.role]}
        </Menu.Label>
        <Menu.Item leftSection={<BookOpen size={15} />} component="a" href="/api/docs">
          {t.account.docs}
        </Menu.Item>
        <Menu.Item leftSection={<LogOut size={15} />} onClick={() => logout.mutate()} data-testid="logout">
          {t.account.logout}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
