import { defineConfig } from "vitest/config";

// The output is committed: names without hashes keep its changes readable. The server
// tells browsers to ask each time whether a file has changed.
export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    rollupOptions: {
      output: { entryFileNames: "assets/monitor.js", assetFileNames: "assets/monitor[extname]" },
    },
  },
  test: { include: ["src/**/*.test.ts"] },
});
