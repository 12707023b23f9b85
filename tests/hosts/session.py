"""What governing costs in a coding session: the 56 calls of `coding.py`, three times, with the official filesystem and git servers.

    session.py COUNTERSIGN FOLDER

without us     the servers face to face
defaults       what `countersign serve` does with nothing but the two servers configured: each change is asked about by itself
recommended    `init --mode execute`, the proposed reads accepted (`tools classify --yes`), changes that belong together as one plan

A turn is one call by the model. Tokens are what the model reads, at four bytes each: the tools it is offered (name, description, input
schema), the server's instructions, and the text of each answer. Decisions are the dialogs a person answers. It fails where the
recommended set-up needs more than `MOST`, and where a change ran that nobody had reviewed.
"""

import itertools
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

import coding
from programs import HERE, Failed

PEERS = HERE.parents[1] / ".cache/peers"
NODE = str(PEERS / "bin/node")
FILES = str(PEERS / "npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
GIT = str(PEERS / "python/bin/mcp-server-git")
MOST = {"turns": 58, "tokens": 15_000, "decisions": 4}
# Longer than a program's answer, which would count as automatic.
READING = 0.45


class Line:
    """A client over stdio whose user agrees to every dialog."""

    def __init__(self, words, cwd, env):
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=cwd, env=env
        )
        self.number, self.answers, self.dialogs = itertools.count(1), queue.Queue(), []
        threading.Thread(target=self.listen, daemon=True).start()
        client = {"name": "session", "version": "1"}
        capabilities = {"elicitation": {}}
        hello = self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": client})
        self.instructions = hello.get("instructions", "")
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def listen(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("method") == "elicitation/create":
                self.dialogs.append(message["params"]["message"])
                time.sleep(READING)
                self.send({"id": message["id"], "result": {"action": "accept", "content": {}}})
            elif "method" not in message:
                self.answers.put(message)

    def ask(self, method, params):
        number = next(self.number)
        self.send({"id": number, "method": method, "params": params})
        while True:
            try:
                answer = self.answers.get(timeout=60)
            except queue.Empty:
                raise Failed(f"no answer to {method} {json.dumps(params)[:300]}") from None
            if answer["id"] == number:
                if "error" in answer:
                    raise Failed(f"{method} {json.dumps(params)[:300]}: {answer['error']}")
                return answer["result"]

    def tools(self):
        return self.ask("tools/list", {})["tools"]

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def text(result):
    return "\n".join(part.get("text", "") for part in result.get("content", []))


def size(what):
    return len((what if isinstance(what, str) else json.dumps(what, ensure_ascii=False, separators=(",", ":"))).encode())


class Count:
    """What the model does and reads."""

    def __init__(self, name):
        self.name, self.turns, self.offered, self.read, self.decisions, self.unreviewed = name, 0, 0, 0, 0, 0

    def offer(self, line):
        for tool in line.tools():
            self.offered += size({key: tool.get(key) for key in ("name", "description", "inputSchema")})
        self.offered += size(line.instructions)

    def turn(self, line, tool, arguments):
        self.turns += 1
        result = line.ask("tools/call", {"name": tool, "arguments": arguments})
        self.read += size(text(result))
        return result

    @property
    def tokens(self):
        return (self.offered + self.read) // 4


def make_project(folder):
    root = folder / "shop"
    for path, content in coding.FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    ours = ["-c", "init.defaultBranch=main", "-c", "user.name=ada", "-c", "user.email=ada@example.com"]
    for words in (["init", "-q"], ["config", "user.name", "ada"], ["config", "user.email", "ada@example.com"], ["add", "."],
                  ["commit", "-qm", "A shop"]):
        subprocess.run(["git", "-C", str(root), *ours, *words], check=True, env=environment(folder), timeout=30)
    return root


def environment(folder):
    return {"HOME": str(folder), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "USER": "ada"}


def finished(root, count):
    """The same end, whichever way."""
    log = subprocess.run(["git", "-C", str(root), "log", "--format=%s", "discount"], text=True, capture_output=True, timeout=30)
    commits = log.stdout.splitlines()
    wanted = ["Release 1.3.0", "Say what a discount is", "Carts from 50 get a discount", "A shop"]
    if commits != wanted:
        raise Failed(f"{count.name}: commits are {commits}")
    status = subprocess.run(["git", "-C", str(root), "status", "--porcelain"], text=True, capture_output=True, timeout=30)
    if status.stdout:
        raise Failed(f"{count.name}: left over: {status.stdout}")


def servers(root):
    return {"files": [NODE, FILES, str(root)], "git": [GIT]}


def without(folder):
    count, root = Count("without us"), make_project(folder)
    lines = {name: Line(words, root, environment(folder)) for name, words in servers(root).items()}
    try:
        for line in lines.values():
            count.offer(line)
        for step in coding.session(root):
            for server, tool, args, effect in step if isinstance(step, list) else [step]:
                result = count.turn(lines[server], tool, args)
                if result.get("isError"):
                    raise Failed(f"{tool}: {text(result)}")
                count.unreviewed += effect == "destructive"
    finally:
        for line in lines.values():
            line.end()
    finished(root, count)
    return count


def configure(folder, root, mode):
    lines = [f'[gateway]\nmode = "{mode}"\n' if mode else ""]
    for name, (command, *args) in servers(root).items():
        lines.append(f"[upstreams.{name}]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n")
    config = folder / "countersign.toml"
    config.write_text("\n".join(lines))
    return config


def wrapped(entry):
    server, tool, args, effect = entry
    return {"name": f"{server}:{tool}", "args": args, "intent": {"operation_type": effect}}


def begin(count, line):
    """The model is offered the tools and looks for those it needs, a query for each server."""
    count.offer(line)
    for query in ("read, search, write, edit and move files", "git status, diff, log, branch, add, commit"):
        count.turn(line, "retrieve_tools", {"query": query})


def settle(countersign, config, line, root, count, folder):
    """Decisions, and what ran without one, as the ledger has it."""
    line.end()
    count.decisions = len(line.dialogs)
    ran = subprocess.run(
        [countersign, "activity", "list", "--json", "--limit", "1000", "--config", str(config)], text=True, capture_output=True,
        env=environment(folder), timeout=60,
    )
    rows = json.loads(ran.stdout)["data"]["activities"]
    calls = [row for row in rows if row["kind"] == "call" and row["status"] == "success" and row.get("upstream") in servers(root)]
    changes = [row for row in calls if row["effect"] != "read"]
    count.unreviewed = sum(row["effect"] == "destructive" and not row.get("approval") for row in changes)
    if len(calls) != 56 or len(changes) != 26:
        raise Failed(f"{count.name}: {len(calls)} calls ran, {len(changes)} of them changes")
    finished(root, count)
    return count


def defaults(countersign, folder):
    count, root = Count("defaults"), make_project(folder)
    config = configure(folder, root, None)
    line = Line([countersign, "serve", "--config", str(config)], root, environment(folder))
    begin(count, line)
    for step in coding.session(root):
        for entry in step if isinstance(step, list) else [step]:
            tool = f"call_tool_{entry[3]}"
            result = count.turn(line, tool, wrapped(entry))
            if "E_MODE_ASK" in text(result):
                # The first change of a session is refused; the model reads why, and sets the mode.
                count.turn(line, "set_mode", {"mode": "execute"})
                result = count.turn(line, tool, wrapped(entry))
            if result.get("isError") or "confirm_token" in text(result):
                raise Failed(f"{entry[1]}: {text(result)}")
    return settle(countersign, config, line, root, count, folder)


def recommended(countersign, folder):
    count, root = Count("recommended"), make_project(folder)
    config = configure(folder, root, "execute")
    accepted = subprocess.run(
        [countersign, "tools", "classify", "--yes", "--json", "--config", str(config)], text=True, capture_output=True, cwd=root,
        env=environment(folder), timeout=60,
    )
    if accepted.returncode != 0:
        raise Failed(f"classify: {accepted.stdout}{accepted.stderr}")
    line = Line([countersign, "serve", "--config", str(config)], root, environment(folder))
    begin(count, line)
    for number, step in enumerate(coding.session(root)):
        if isinstance(step, list):
            plan = {"title": f"Part {number} of the discount", "steps": [wrapped(entry) for entry in step]}
            result = count.turn(line, "draft_plan", plan)
        else:
            result = count.turn(line, f"call_tool_{step[3]}", wrapped(step))
        if result.get("isError") or "confirm_token" in text(result):
            raise Failed(f"step {number}: {text(result)}")
    return settle(countersign, config, line, root, count, folder)


def table(counts):
    rows = [("", *(count.name for count in counts))]
    for name, value in (
        ("model turns", lambda count: count.turns), ("tokens read", lambda count: count.tokens),
        ("of these, tools and instructions", lambda count: count.offered // 4), ("of these, answers", lambda count: count.read // 4),
        ("decisions of a person", lambda count: count.decisions), ("destructive calls nobody reviewed", lambda count: count.unreviewed),
    ):
        rows.append((name, *(str(value(count)) for count in counts)))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return lines


def one(countersign, folder, name, _program):
    """All three; the table, or what is wrong with it."""
    counts = []
    for number, play in enumerate((without, lambda room: defaults(countersign, room), lambda room: recommended(countersign, room))):
        room = pathlib.Path(folder) / f"{name}-{number}"
        room.mkdir(parents=True)
        counts.append(play(room))
    lines = table(counts)
    print("\n".join(lines), flush=True)
    last = counts[-1]
    over = [f"{what} {getattr(last, what)} > {most}" for what, most in MOST.items() if getattr(last, what) > most]
    if over or any(count.unreviewed for count in counts[1:]):
        raise Failed(f"{'; '.join(over)}; not reviewed: {[count.unreviewed for count in counts]}")
    return f"{last.turns} turns, {last.tokens} tokens, {last.decisions} decisions in the recommended set-up"


if __name__ == "__main__":
    print(one(str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2], "session", None))
