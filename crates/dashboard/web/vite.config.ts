// Builds the page into ../assets and writes the list of its files for the Rust crate.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";

// A test builds into another directory and compares.
const OUT = process.env["DASHBOARD_OUT"];
const ASSETS = OUT ? join(OUT, "assets") : join(import.meta.dirname, "../assets");
const LIST = OUT ? join(OUT, "built.rs") : join(import.meta.dirname, "../src/built.rs");

const TYPES: Record<string, string> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript",
  css: "text/css",
  svg: "image/svg+xml",
};

/** Writes `built.rs`, in the form that rustfmt leaves as it is. */
function rustList(): Plugin {
  return {
    name: "rust-list",
    apply: "build",
    closeBundle() {
      // One line feed at the end, as in every other file of the repository.
      const page = join(ASSETS, "index.html");
      writeFileSync(page, `${readFileSync(page, "utf8").trimEnd()}\n`);
      const files = readdirSync(ASSETS).sort();
      const items = files.map((file) => {
        const type = TYPES[file.split(".").pop() ?? ""];
        if (!type) throw new Error(`no media type for ${file}`);
        const isPage = file === "index.html";
        return [
          "    Asset {",
          `        path: "${isPage ? "/" : `/assets/${file}`}",`,
          `        content_type: "${type}",`,
          `        bytes: include_bytes!("../assets/${file}"),`,
          `        is_hashed: ${!isPage},`,
          "    },",
        ].join("\n");
      });
      const head = [
        "//! List of the built files, written by `npm run build` in `web/`.",
        "",
        "use super::Asset;",
        "",
        "/// Files of `assets/`.",
        "pub(super) const ASSETS: &[Asset] = &[",
      ];
      writeFileSync(LIST, `${[...head, ...items, "];"].join("\n")}\n`);
    },
  };
}

export default defineConfig({
  base: "/",
  plugins: [rustList()],
  build: {
    outDir: ASSETS,
    emptyOutDir: true,
    target: "es2022",
    // Nothing is inlined: the content policy of the daemon allows files alone.
    assetsInlineLimit: 0,
    modulePreload: false,
    rollupOptions: {
      output: {
        entryFileNames: "[name]-[hash].js",
        chunkFileNames: "[name]-[hash].js",
        assetFileNames: "[name]-[hash][extname]",
      },
    },
  },
  // Files lie flat in ../assets and are served below /assets/.
  experimental: {
    renderBuiltUrl: (file) => `/assets/${file}`,
  },
});
