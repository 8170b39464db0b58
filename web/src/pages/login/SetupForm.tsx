import { Button, PasswordInput, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { useSetup } from "../../api/data";
import { ProblemNote } from "../../parts/Region";
import { t } from "../../text";

const shortest = 10;

/** The first administrator, made with the one-time token of the first start. */
export function SetupForm() {
  const setup = useSetup();
  const [setupToken, setSetupToken] = useState("");
  const [name, setName] = useState("admin");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const tooShort = password !== "" && password.length < shortest;
  const differs = again !== "" && again !== password;
  const ready = setupToken.trim() && name.trim() && password.length >= shortest && again === password;

  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (ready) setup.mutate({ setupToken: setupToken.trim(), name: name.trim(), password });
  };

  return (
    <form className="stack" onSubmit={submit} aria-label={t.setup.title} data-testid="setup-form">
      <div>
        <h2>{t.setup.title}</h2>
        <p className="second">{t.setup.explain}</p>
      </div>
      <TextInput
        label={t.setup.token}
        description={t.setup.tokenHint}
        value={setupToken}
        onChange={(event) => setSetupToken(event.currentTarget.value)}
        autoComplete="one-time-code"
        spellCheck={false}
        autoFocus
        data-testid="setup-token"
      />
      <TextInput
        label={t.login.name}
        value={name}
        onChange={(event) => setName(event.currentTarget.value)}
        autoComplete="username"
        data-testid="setup-name"
      />
      <PasswordInput
        label={t.login.password}
        description={t.setup.passwordHint(shortest)}
        value={password}
        onChange={(event) => setPassword(event.currentTarget.value)}
        error={tooShort ? t.setup.tooShort(shortest) : undefined}
        autoComplete="new-password"
        data-testid="setup-password"
      />
      <PasswordInput
        label={t.setup.again}
        value={again}
        onChange={(event) => setAgain(event.currentTarget.value)}
        error={differs ? t.setup.differs : undefined}
        autoComplete="new-password"
        data-testid="setup-again"
      />
      <ProblemNote error={setup.error} />
      <Button type="submit" fullWidth loading={setup.isPending} disabled={!ready} data-testid="setup-submit">
        {t.setup.submit}
      </Button>
    </form>
  );
}
