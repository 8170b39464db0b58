import { Button, PasswordInput, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { useLogin } from "../../api/data";
import { ProblemNote } from "../../parts/Region";
import { t } from "../../text";
import styles from "./SignInPage.module.css";

/** One form: a name and a password, or an access token. */
export function LoginForm() {
  const login = useLogin();
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [token, setToken] = useState("");
  const ready = token.trim() !== "" || (name.trim() !== "" && password !== "");

  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!ready) return;
    login.mutate(token.trim() ? { token: token.trim() } : { name: name.trim(), password });
  };

  return (
    <form className="stack" onSubmit={submit} aria-label={t.login.title} data-testid="login-form">
      <TextInput
        label={t.login.name}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
        autoComplete="username"
        autoFocus
        data-testid="login-name"
      />
      <PasswordInput
        label={t.login.password}
        value={password}
        onChange={(event) => setPassword(event.currentTarget.value)}
        autoComplete="current-password"
        data-testid="login-password"
      />
      <p className={styles.or}>
        <span>{t.login.or}</span>
      </p>
      <TextInput
        label={t.login.token}
        description={t.login.tokenHint}
        placeholder="shardis_pat_…"
        value={token}
        onChange={(event) => setToken(event.currentTarget.value)}
        autoComplete="off"
        spellCheck={false}
        classNames={{ input: styles.tokenInput }}
        data-testid="login-token"
      />
      <ProblemNote error={login.error} />
      <Button type="submit" fullWidth loading={login.isPending} disabled={!ready} data-testid="login-submit">
        {t.login.submit}
      </Button>
    </form>
  );
}
