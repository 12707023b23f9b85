"""One scene: steps in a fresh home and project, run with one program, and what it printed, normalised."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

CHANGING = [
    # The original unpacks modules there before it looks at them.
    (re.compile(r"/[\w./-]*/\.tmp\w{6}/"), "<TEMPORARY>/"),
    (re.compile(r"\b\d{19}\b"), "<ID>"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<TIME>"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "<COMMIT>"),
    (re.compile(r"\d{8}T\d{6}Z-\d{9}"), "<STAMP>"),
]


class Scene:
    def __init__(self, program: list[str], files: dict[str, str]):
        self.program, self.files = program, files
        self.root = Path(tempfile.mkdtemp(prefix="agentpack-")).resolve()
        self.work, home = self.root / "work", self.root / "home"
        self.repo = home / ".agentpack" / "repo"
        self.work.mkdir()
        home.mkdir()
        self.project = hashlib.sha256(str(self.work).encode()).hexdigest()[:16]
        self.ids: list[str] = []
        self.environment = {
            "HOME": str(home),
            "AGENTPACK_HOME": str(home / ".agentpack"),
            "AGENTPACK_MACHINE_ID": "box",
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        for who in ("AUTHOR", "COMMITTER"):
            self.environment[f"GIT_{who}_NAME"] = "Ada"
            self.environment[f"GIT_{who}_EMAIL"] = "ada@example.com"
            self.environment[f"GIT_{who}_DATE"] = "2026-01-02T03:04:05Z"
        self.git(["init", "-q", "-b", "main"], self.work)

    def close(self):
        shutil.rmtree(self.root)

    def path(self, name: str) -> Path:
        """`repo/…` is the config repo; everything else is below the scene's own folder."""
        first, _, rest = name.partition("/")
        return self.repo / rest if first == "repo" else self.root / name

    def git(self, words: list[str], folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        command = ["git", *words]
        return subprocess.run(command, cwd=folder, env=self.environment, capture_output=True, text=True, check=True)

    def normal(self, value):
        """The same value without what differs from run to run."""
        if isinstance(value, dict):
            return {name: self.normal(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.normal(item) for item in value]
        if not isinstance(value, str):
            return value
        value = value.replace(str(self.root), "<ROOT>").replace(self.project, "<PROJECT>")
        for nth, known in enumerate(self.ids, 1):
            value = value.replace(known, f"<ID{nth}>")
        for pattern, name in CHANGING:
            value = pattern.sub(name, value)
        return value

    def write(self, files: dict[str, str], mode: str):
        for name, text in files.items():
            path = self.path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open(mode) as file:
                file.write(self.files.get(text, text).replace("<ROOT>", str(self.root)))

    def run(self, line: str, stdin: str):
        for nth, known in enumerate(self.ids, 1):
            line = line.replace(f"${nth}", known)
        command = [*self.program, *line.split(), "--json"]
        ended = subprocess.run(
            command, cwd=self.work, env=self.environment, input=stdin, capture_output=True, text=True, timeout=120
        )
        try:
            printed = json.loads(ended.stdout)
        except ValueError:
            return {"no_envelope": ended.stdout, "stderr": ended.stderr}
        made = printed.get("data", {}).get("snapshot_id")
        if made and made not in self.ids:
            self.ids.append(made)
        return self.normal(printed)

    def step(self, step: dict):
        """Does a step; what it shows, if it shows something."""
        match step:
            case {"write": files}:
                self.write(files, "w")
            case {"append": files}:
                self.write(files, "a")
            case {"remove": name}:
                self.path(name).unlink()
            case {"read": name}:
                return self.normal(json.loads(self.path(name).read_text()))
            case {"git": line, "in": name}:
                shown = self.git(line.split(), self.path(name)).stdout
                return shown if line.split()[0] in ("log", "branch") else None
            case {"run": line}:
                return self.run(line, step.get("stdin", ""))
            case _:
                raise ValueError(f"unknown step: {step}")


def play(program: list[str], steps: list[dict], files: dict[str, str]) -> list:
    """What every step of a scene shows."""
    scene = Scene(program, files)
    try:
        return [scene.step(step) for step in steps]
    finally:
        scene.close()
