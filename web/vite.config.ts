/// <reference types="vitest/config" />
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// In development the API is either the real dashboard or mock/server.mjs.
const api = process.env.SHARDIS_API ?? "http://127.0.0.1:8099";

export default defineConfig({
  plugins: [react()],
  server: { port: 5173, proxy: { "/api": api, "/version": api } },
  build: {
    target: "es2022",
    // The content security policy allows no data: URLs, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  test: {
    environment: "happy-dom",
    setupFiles: ["src/testing/setup.ts"],
    include: ["src/**/*.test.{ts,tsx}"],
    restoreMocks: true,
    // The parts under test keep no state between files, and a fresh DOM each costs seconds.
    isolate: false,
  },
});
