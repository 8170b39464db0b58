import { fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { answer, show } from "../../testing/render";
import { SignInPage } from "./SignInPage";

const state = { setupNeeded: false, user: null };
const type = (id: string, value: string) => fireEvent.change(screen.getByTestId(id), { target: { value } });

describe("sign in", () => {
  it("takes a token instead of a name", async () => {
    const calls = answer({ "POST /auth/login": { body: { name: "t", role: "admin" } } });
    show(<SignInPage state={state} />);
    expect(screen.getByTestId<HTMLButtonElement>("login-submit").disabled).toBe(true);
    type("login-token", " shardis_pat_x ");
    fireEvent.click(screen.getByTestId("login-submit"));
    await waitFor(() =>
      expect(calls).toEqual([{ request: "POST /auth/login", body: { token: "shardis_pat_x" } }]),
    );
  });

  it("says why it was refused", async () => {
    answer({
      "POST /auth/login": {
        status: 401,
        body: { code: "login-failed", title: "Sign-in failed", detail: "no match" },
      },
    });
    show(<SignInPage state={state} />);
    type("login-name", "admin");
    type("login-password", "nope");
    fireEvent.click(screen.getByTestId("login-submit"));
    expect((await screen.findByRole("alert")).textContent).toContain("no match");
  });

  it("makes the first administrator", async () => {
    const calls = answer({ "POST /auth/setup": { body: { name: "admin", role: "admin" } } });
    show(<SignInPage state={{ ...state, setupNeeded: true }} />);
    type("setup-token", "once");
    type("setup-password", "long enough pw");
    type("setup-again", "other");
    expect(screen.getByTestId<HTMLButtonElement>("setup-submit").disabled).toBe(true);
    type("setup-again", "long enough pw");
    fireEvent.click(screen.getByTestId("setup-submit"));
    await waitFor(() =>
      expect(calls[0]?.body).toEqual({ setupToken: "once", name: "admin", password: "long enough pw" }),
    );
  });
});
