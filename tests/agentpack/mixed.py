"""Deploys and rollbacks of two programs in one chain: after each, the files are those of the snapshot."""

import json
import random

from scene import Scene

HEAD = """version: 1
profiles: { default: { include_tags: [base] } }
targets:
  codex: { mode: files, scope: both }
  claude_code: { mode: files, scope: both }
modules:
  - { id: 'instructions:base', type: instructions, tags: [base], source: { local_path: { path: modules/base } } }
"""
COMMAND = "  - { id: 'command:go', type: command, tags: [base], source: { local_path: { path: modules/go.md } } }\n"
FILES = ["home/.codex/AGENTS.md", "work/AGENTS.md", "home/.claude/commands/go.md", "work/.claude/commands/go.md"]
RECORDS = ["home/.codex/.agentpack.manifest.codex.json", "work/.agentpack.manifest.codex.json"]


class Chain:
    def __init__(self, ours: list[str], original: list[str], seed: int):
        self.ours, self.original, self.choice = ours, original, random.Random(seed)
        self.scene, self.snapshots, self.log = Scene(ours, {}), [], []

    def state(self) -> list:
        paths = [self.scene.path(name) for name in FILES]
        records = [self.scene.path(name) for name in RECORDS]
        return [path.read_text() if path.exists() else None for path in paths] + [
            json.loads(path.read_text())["managed_files"] if path.exists() else None for path in records
        ]

    def run(self, program: list[str], line: str) -> dict:
        self.log.append(f"{'ours' if program is self.ours else 'original'}: {line}")
        self.scene.program = program
        answer = self.scene.run(line + " --yes", "")
        assert answer.get("ok"), (self.log, answer)
        return answer

    def either(self) -> list[str]:
        return self.choice.choice([self.ours, self.original])

    def deploy(self, nth: int):
        manifest = HEAD + (COMMAND if self.choice.random() < 0.6 else "")
        self.scene.write(
            {
                "repo/agentpack.yaml": manifest,
                "repo/modules/base/AGENTS.md": f"version {nth}\n",
                "repo/modules/go.md": f"---\ndescription: goes\n---\n{nth}\n",
            },
            "w",
        )
        self.run(self.either(), "deploy --apply")
        self.snapshots.append((f"${len(self.scene.ids)}", self.state()))

    def rollback(self):
        if self.choice.random() < 0.2:
            self.run(self.ours, "rollback --to initial")
            expected = [None] * len(self.state())
        else:
            to, expected = self.choice.choice(self.snapshots)
            self.run(self.either(), f"rollback --to {to}")
        assert self.state() == expected, (self.log, self.state(), expected)


def main(ours: list[str], original: list[str], chains: int = 12) -> int:
    for seed in range(chains):
        chain = Chain(ours, original, seed)
        try:
            for nth in range(4):
                chain.deploy(nth)
                if chain.choice.random() < 0.4:
                    chain.rollback()
            for _ in range(6):
                chain.rollback()
        except AssertionError as wrong:
            print(f"agentpack: mixed chain {seed}: {wrong}")
            return 1
        finally:
            chain.scene.close()
    print(f"agentpack: {chains} mixed chains rolled back")
    return 0
