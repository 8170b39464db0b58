import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { receive } from "../../api/data";
import { operation } from "../../testing/fixture";
import { answer, show } from "../../testing/render";
import { OperationPage } from "./OperationPage";

describe("operation page", () => {
  it("follows the stream", async () => {
    answer({ "GET /operations/op-1": { body: operation } });
    const { client } = show(<OperationPage id="op-1" />);
    expect((await screen.findByTestId("operation-state")).textContent).toBe("Running");
    expect(screen.getByTestId("operation-progress").getAttribute("aria-valuenow")).toBe("37");
    act(() =>
      receive(client, {
        type: "operations",
        data: {
          ...operation,
          moves: undefined,
          state: "succeeded",
          actions: [],
          finishedAt: "2026-01-01T00:00:09Z",
        },
      }),
    );
    await waitFor(() => expect(screen.getByTestId("operation-state").textContent).toBe("Succeeded"));
    expect(screen.getByTestId("operation-progress").getAttribute("aria-valuenow")).toBe("100");
    expect(screen.queryByTestId("operation-pause")).toBeNull();
  });

  it("pauses at once and cancels only after saying what that does", async () => {
    const calls = answer({
      "GET /operations/op-1": { body: operation },
      "POST /operations/op-1/actions/pause": {
        status: 202,
        body: { ...operation, state: "paused", actions: ["resume", "cancel"] },
      },
      "POST /operations/op-1/actions/cancel": {
        status: 202,
        body: { ...operation, state: "cancelling", actions: [] },
      },
    });
    show(<OperationPage id="op-1" />);
    fireEvent.click(await screen.findByTestId("operation-pause"));
    expect(await screen.findByTestId("operation-resume")).toBeTruthy();
    fireEvent.click(screen.getByTestId("operation-cancel"));
    expect((await screen.findByText(/have moved and stay/)).textContent).toContain("86 slots");
    expect(screen.getByText(/stay with the group that owns them/).textContent).toContain("170 slots");
    fireEvent.click(screen.getByTestId("operation-cancel-confirm"));
    await waitFor(() => expect(screen.getByTestId("operation-state").textContent).toBe("Cancelling"));
    expect(calls.map((c) => c.request)).toEqual([
      "GET /operations/op-1",
      "POST /operations/op-1/actions/pause",
      "POST /operations/op-1/actions/cancel",
    ]);
  });

  it("says why it failed", async () => {
    answer({
      "GET /operations/op-1": { body: { ...operation, state: "failed", reason: "node gone", actions: [] } },
    });
    show(<OperationPage id="op-1" />);
    expect((await screen.findByTestId("operation-reason")).textContent).toBe("node gone");
  });
});
