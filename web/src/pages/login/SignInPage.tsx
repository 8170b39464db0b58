import type { AuthState } from "../../api/types";
import { Logo } from "../../frame/Logo";
import { t } from "../../text";
import { LoginForm } from "./LoginForm";
import { SetupForm } from "./SetupForm";
import styles from "./SignInPage.module.css";
import { SlotField } from "./SlotField";

export function SignInPage({ state }: { state: AuthState }) {
  return (
    <main className={styles.page}>
      <div className={styles.card}>
        <div className={styles.brand}>
          <Logo size={34} />
          <div>
            <h1>{t.app.name}</h1>
            <p className="quiet">
              {state.cluster?.name ? t.login.cluster(state.cluster.name) : t.login.tagline}
            </p>
          </div>
        </div>
        {state.setupNeeded ? <SetupForm /> : <LoginForm />}
      </div>
      <SlotField />
    </main>
  );
}
