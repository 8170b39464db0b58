import { fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { operation, snapshot } from "../../testing/fixture";
import { answer, show } from "../../testing/render";
import { AddGroupPage } from "./AddGroupPage";
import { GroupPage } from "./GroupPage";
import { GroupsPage } from "./GroupsPage";

describe("groups", () => {
  it("puts a group with a problem first, in words", () => {
    const data = snapshot();
    data.groups[2] = { ...data.groups[2]!, state: "attention", problem: "replica is 14 s behind" };
    const { container } = show(<GroupsPage />, { data });
    const cards = [...container.querySelectorAll("[data-testid^=group-card-]")].map((c) =>
      c.getAttribute("data-testid"),
    );
    expect(cards).toEqual(["group-card-g3", "group-card-g1", "group-card-g2", "group-card-g4"]);
    expect(screen.getByText("replica is 14 s behind")).toBeTruthy();
  });

  it("does not remove a group that owns slots, and says so", () => {
    show(<GroupPage id="g1" />);
    expect(screen.getByTestId<HTMLButtonElement>("group-remove").disabled).toBe(true);
    expect(screen.getAllByLabelText("It owns 342 slots. Drain it before removing it.")).toBeTruthy();
  });

  it("removes a spare once its name is typed", async () => {
    const calls = answer({ "DELETE /groups/g4": { status: 202, body: operation } });
    const { history } = show(<GroupPage id="g4" />);
    fireEvent.click(screen.getByTestId("group-remove"));
    const button = await screen.findByTestId<HTMLButtonElement>("confirm");
    expect(button.disabled).toBe(true);
    fireEvent.change(screen.getByTestId("confirm-name"), { target: { value: "g4" } });
    fireEvent.click(button);
    await waitFor(() => expect(history.at(-1)).toBe("/operations/op-1"));
    expect(calls.map((c) => c.request)).toEqual(["DELETE /groups/g4"]);
  });

  it("adds a group only after a probe that passed", async () => {
    const calls = answer({
      "POST /node-probes": {
        body: {
          items: [
            { addr: "10.0.0.1:1", ok: true, checks: [] },
            { addr: "10.0.0.2:1", ok: true, checks: [] },
          ],
        },
      },
      "POST /groups": { status: 202, body: operation },
    });
    const { history } = show(<AddGroupPage />, { path: "/groups/new" });
    fireEvent.change(screen.getByTestId("add-group-nodes"), { target: { value: "10.0.0.1:1\n10.0.0.2:1" } });
    fireEvent.change(screen.getByTestId("add-group-password"), { target: { value: "pw" } });
    expect(screen.queryByTestId("add-group-submit")).toBeNull();
    fireEvent.click(screen.getByTestId("add-group-probe"));
    fireEvent.click(await screen.findByTestId("add-group-submit"));
    await waitFor(() => expect(history.at(-1)).toBe("/operations/op-1"));
    expect(calls.at(-1)?.body).toEqual({
      id: "g5",
      nodes: [
        { addr: "10.0.0.1:1", role: "master" },
        { addr: "10.0.0.2:1", role: "replica" },
      ],
      password: "pw",
    });
  });
});
