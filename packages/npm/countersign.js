#!/usr/bin/env node
// Starts the binary of the package for this platform, and becomes it as far as a parent can tell: same streams, same signals, same end.
"use strict";
const { spawn } = require("node:child_process");

const platform = `${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`@countersign/${platform}/bin/countersign${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  process.stderr.write(
    `countersign: the package @countersign/${platform} is not installed: npm left optional packages out, or there is no build for ${platform}\n`,
  );
  process.exit(1);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
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
