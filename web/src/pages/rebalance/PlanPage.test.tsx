import { fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { operation, plan } from "../../testing/fixture";
import { answer, show } from "../../testing/render";
import { GoalPage } from "./GoalPage";
import { PlanPage } from "./PlanPage";

describe("rebalance", () => {
  it("goes from the button's address straight to a stored plan, and starts nothing", async () => {
    const calls = answer({ "POST /plans": { status: 201, body: plan } });
    const { history } = show(<GoalPage />, { path: "/rebalance?goal=slots" });
    await waitFor(() => expect(history.at(-1)).toBe("/rebalance/plan-1"));
    expect(calls).toEqual([{ request: "POST /plans", body: { goal: "slots" } }]);
  });

  it("asks for a goal when the address has none", () => {
    const calls = answer({});
    show(<GoalPage />, { path: "/rebalance" });
    expect(screen.getByTestId("plan-create")).toBeTruthy();
    expect(calls).toEqual([]);
  });

  it("shows the plan and starts exactly that one", async () => {
    const calls = answer({
      "GET /plans/plan-1": { body: plan },
      "POST /operations": { status: 202, body: operation },
    });
    const { history } = show(<PlanPage id="plan-1" />, { path: "/rebalance/plan-1" });
    expect((await screen.findByTestId("plan-summary")).textContent).toContain("Moves 256 of 1024 slots.");
    expect(screen.getByTestId("plan-group-g4").dataset).toMatchObject({ before: "0", after: "256" });
    expect(screen.getByTestId("plan-start").textContent).toBe("Move 256 slots");
    expect(calls.map((c) => c.request)).toEqual(["GET /plans/plan-1"]);
    fireEvent.click(screen.getByTestId("plan-start"));
    await waitFor(() => expect(history.at(-1)).toBe("/operations/op-1"));
    expect(calls.at(-1)).toEqual({ request: "POST /operations", body: { plan: "plan-1" } });
  });

  it("turns a refused plan into a new one", async () => {
    answer({
      "GET /plans/plan-1": { body: plan },
      "POST /operations": {
        status: 409,
        body: {
          code: "plan-stale",
          title: "The plan is out of date",
          detail: "slots 0-85 moved since",
          status: 409,
        },
      },
      "POST /plans": { status: 201, body: { ...plan, id: "plan-2" } },
    });
    const { history } = show(<PlanPage id="plan-1" />, { path: "/rebalance/plan-1" });
    fireEvent.click(await screen.findByTestId("plan-start"));
    expect((await screen.findByTestId("plan-stale")).textContent).toContain("slots 0-85 moved since");
    expect(screen.queryByTestId("plan-start")).toBeNull();
    fireEvent.click(screen.getByTestId("plan-recompute"));
    await waitFor(() => expect(history.at(-1)).toBe("/rebalance/plan-2"));
  });

  it("is not for viewers", async () => {
    answer({ "GET /plans/plan-1": { body: plan } });
    show(<PlanPage id="plan-1" />, { user: { name: "v", role: "viewer" } });
    expect((await screen.findByTestId<HTMLButtonElement>("plan-start")).disabled).toBe(true);
  });
});
