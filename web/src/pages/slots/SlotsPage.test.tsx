import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { snapshot } from "../../testing/fixture";
import { answer, show } from "../../testing/render";
import { moveCursor } from "./keys";
import { SlotsPage } from "./SlotsPage";

describe("slots page", () => {
  it("tells the owners in the map's data, legend and table", () => {
    show(<SlotsPage />);
    expect(JSON.parse(screen.getByTestId("slot-map").dataset.owners!)).toEqual({
      g1: 342,
      g2: 341,
      g3: 341,
    });
    expect(screen.getByTestId("slot-legend-g1").dataset.slots).toBe("342");
    expect(within(screen.getByTestId("slot-table")).getAllByRole("row")).toHaveLength(4);
  });

  it("selects a typed list and leads to the plan of a move", async () => {
    const { history } = show(<SlotsPage />, { path: "/slots" });
    fireEvent.change(screen.getByTestId("slot-find"), { target: { value: "0-9,512" } });
    fireEvent.click(screen.getByRole("button", { name: "Select these slots" }));
    expect(screen.getByTestId("slot-selection").textContent).toContain("11 slots");
    fireEvent.change(screen.getByTestId("slot-target"), { target: { value: "g4" } });
    fireEvent.click(screen.getByTestId("slot-plan-move"));
    await waitFor(() => expect(history.at(-1)).toBe("/rebalance?goal=move&slots=0-9%2C512&to=g4"));
  });

  it("selects by keyboard", () => {
    show(<SlotsPage />);
    const map = screen.getByTestId("slot-map");
    fireEvent.keyDown(map, { key: "ArrowDown" });
    fireEvent.keyDown(map, { key: "Enter" });
    fireEvent.keyDown(map, { key: "ArrowRight", shiftKey: true });
    expect(screen.getByTestId("slot-selection").textContent).toContain("32-33");
    fireEvent.keyDown(map, { key: "Escape" });
    expect(screen.queryByTestId("slot-selection")).toBeNull();
  });

  it("finds the owner of a key", async () => {
    answer({
      "GET /slots/lookup?key=user%3A%7B42%7D": {
        body: { key: "user:{42}", tag: "42", slot: 7, group: "g1", master: "127.0.0.1:7110" },
      },
    });
    show(<SlotsPage />);
    fireEvent.change(screen.getByTestId("slot-find"), { target: { value: "user:{42}" } });
    fireEvent.click(screen.getByRole("button", { name: "Find this key" }));
    expect((await screen.findByTestId("slot-found")).textContent).toContain("127.0.0.1:7110");
  });

  it("offers the first assignment when nobody owns anything", () => {
    const data = snapshot();
    data.slots.items = [{ slots: "0-1023", group: "", state: "unassigned" }];
    show(<SlotsPage />, { data });
    expect(screen.getByText(/Spread 1,024 slots evenly over 4 groups/)).toBeTruthy();
  });
});

describe("cell cursor", () => {
  it("stays on the map", () => {
    expect(moveCursor("ArrowUp", 5, 32, 1024)).toBe(5);
    expect(moveCursor("ArrowDown", 1000, 32, 1024)).toBe(1000);
    expect(moveCursor("ArrowRight", 1023, 32, 1024)).toBe(1023);
    expect(moveCursor("End", 33, 32, 1024)).toBe(63);
    expect(moveCursor("x", 33, 32, 1024)).toBeNull();
  });
});
