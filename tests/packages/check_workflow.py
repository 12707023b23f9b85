"""Checks that the release workflow fits this repository: `check_workflow.py TOP`.

Its platforms are those of packages/platforms.py, every file that a step names exists, every script is one for bash, every action has a
version, and what it drafts is not published.
"""

import pathlib
import re
import subprocess
import sys

import ruamel.yaml

top = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(top / "packages"))
from platforms import PLATFORMS  # noqa: E402

workflow = ruamel.yaml.YAML(typ="safe").load(top / ".github/workflows/release.yml")
jobs = workflow["jobs"]
built = {one["platform"] for one in jobs["build"]["strategy"]["matrix"]["include"]}
assert built == set(PLATFORMS), f"built are {built}, packages/platforms.py has {set(PLATFORMS)}"

steps = [step for job in jobs.values() for step in job["steps"]]
for step in steps:
    if "uses" in step:
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]), step["uses"]
        continue
    script = re.sub(r"\$\{\{.*?\}\}", "value", step["run"])
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    for name in re.findall(r"(?<![\w/])(?:packages|tests|\.ci)/[\w./-]+", script):
        assert (top / name).exists(), f"a step names {name}, which is not there"

scripts = "\n".join(step.get("run", "") for step in steps)
assert "packages/build" in scripts and "packages/release.py" in scripts and "--draft" in scripts
assert not re.search(r"npm publish|twine|uv publish|cargo publish|docker push", scripts), "the workflow publishes"
assert any(step.get("uses", "").startswith("actions/attest-build-provenance@") for step in steps)
assert jobs["release"]["permissions"]["id-token"] == "write" and workflow["permissions"] == {"contents": "read"}
# The version that the last job reads is the one the workspace has.
read = next(line for line in scripts.splitlines() if line.startswith("version="))
version = subprocess.run(["bash", "-c", f"{read} && echo $version"], cwd=top, check=True, capture_output=True, text=True).stdout.strip()
assert f'version = "{version}"' in (top / "Cargo.toml").read_text().splitlines(), version
