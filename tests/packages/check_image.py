"""Checks the Dockerfile as far as that goes without an engine: `check_image.py TOP BINARY`.

The last stage starts from nothing, runs as a numeric account that is not root, and starts a command line that the binary knows;
the toolchain is ours; compose.yaml and the Dockerfile agree on files, port and account's folder.
"""

import json
import pathlib
import re
import subprocess
import sys

import ruamel.yaml

top, binary = pathlib.Path(sys.argv[1]), sys.argv[2]
folder = top / "packages/docker"
text = re.sub(r"\\\n\s*", "", (folder / "Dockerfile").read_text())
steps = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
stages = [at for at, (verb, _) in enumerate(steps) if verb == "FROM"]
last = dict(steps[stages[-1] :])

toolchain = re.search(r'channel = "(.*)"', (top / "rust-toolchain.toml").read_text()).group(1)
assert steps[0] == ["FROM", f"rust:{toolchain}-alpine AS build"], f"the image is built with {steps[0]}, we with {toolchain}"
assert last["FROM"] == "scratch", "the image is not empty but for the binary"
assert all(int(part) > 0 for part in last["USER"].split(":")), "the image runs as root"
build = next(rest for verb, rest in steps if verb == "RUN" and "cargo build" in rest)
assert build in (top / "packages/build").read_text().replace('", "', " ").replace('"', ""), f"packages/build does not run `{build}`"

command = [*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])]
assert command[0] == "/countersign", command
subprocess.run([binary, *command[1:], "--help"], check=True, stdout=subprocess.DEVNULL)

compose = ruamel.yaml.YAML(typ="safe").load(folder / "compose.yaml")
gateway = compose["services"]["gateway"]
assert (folder / gateway["build"]["context"]).resolve() == top.resolve()
assert (top / gateway["build"]["dockerfile"]).exists()
mounts = dict(one.split(":")[:2] for one in gateway["volumes"])
assert mounts["./countersign.toml"] == command[-1] == gateway["environment"]["COUNTERSIGN_CONFIG"], mounts
assert mounts["gateway"] == last["VOLUME"] == last["WORKDIR"], mounts
assert gateway["ports"] == [f"127.0.0.1:{last['EXPOSE']}:{last['EXPOSE']}"], "the port is not on loopback alone"
assert f'listen = "0.0.0.0:{last["EXPOSE"]}"' in (folder / "countersign.toml").read_text()
