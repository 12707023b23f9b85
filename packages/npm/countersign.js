#!/usr/bin/env node
// Starts the binary that came with this package, and becomes it as far as a parent can tell: same streams, same signals, same end.
"use strict";
const { spawn } = require("node:child_process");
const { join } = require("node:path");

const child = spawn(join(__dirname, "bin", "countersign"), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  process.stderr.write(`countersign: the binary of this package can't be started: ${error.message}\n`);
  process.exitCode = 1;
});
child.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exitCode = code;
  }
});
