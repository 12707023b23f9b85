"""Drives the live run: every server behind one gateway, from its first list to an accepted read.

drive.py COUNTERSIGN CACHE SCENE
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

COUNTERSIGN, CACHE, SCENE = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
NODE = str(CACHE.parent / "peers/bin/node") if (CACHE.parent / "peers/bin/node").exists() else "node"
FILES = SCENE / "files"


def npm(package: str, *args: str) -> list[str]:
    folder = CACHE / "node_modules" / package
    program = json.loads((folder / "package.json").read_text())["bin"]
    program = program if isinstance(program, str) else next(iter(program.values()))
    return [NODE, str(folder / program), *args]


def pypi(package: str, *args: str) -> list[str]:
    return [str(CACHE / "python" / package / "bin" / package), *args]


# Name, command, environment: keys that nothing checks before the first call.
SERVERS = {
    "everything": (npm("@modelcontextprotocol/server-everything", "stdio"), {}),
    "filesystem": (npm("@modelcontextprotocol/server-filesystem", str(FILES)), {}),
    "memory": (npm("@modelcontextprotocol/server-memory"), {"MEMORY_FILE_PATH": str(SCENE / "memory.json")}),
    "thinking": (npm("@modelcontextprotocol/server-sequential-thinking"), {}),
    "gitlab": (npm("@modelcontextprotocol/server-gitlab"), {"GITLAB_PERSONAL_ACCESS_TOKEN": "none"}),
    "maps": (npm("@modelcontextprotocol/server-google-maps"), {"GOOGLE_MAPS_API_KEY": "none"}),
    "context7": (npm("@upstash/context7-mcp"), {}),
    "tasks": (npm("@kazuph/mcp-taskmanager"), {"TASK_MANAGER_FILE_PATH": str(SCENE / "tasks.json")}),
    "linear": (npm("linear-mcp-server"), {"LINEAR_API_KEY": "none"}),
    "kubernetes": (npm("mcp-server-kubernetes"), {}),
    "calculator": (pypi("mcp-server-calculator"), {}),
    "git": (pypi("mcp-server-git"), {}),
    "duckduckgo": (pypi("duckduckgo-mcp-server"), {}),
}


def configure(path: Path, names: list[str]) -> None:
    parts = [f"[gateway]\nstore = {json.dumps('sqlite:' + str(SCENE / 'ledger.db'))}\n"]
    for name in names:
        command, env = SERVERS[name]
        pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items())
        parts.append(f"[upstreams.{name}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\nenv = {{ {pairs} }}\n")
    path.write_text("\n".join(parts))


def run(*words: str) -> tuple[int, dict, float]:
    env = {"PATH": os.environ["PATH"], "HOME": str(SCENE), "LANG": "C.UTF-8"}
    began = time.monotonic()
    command = [COUNTERSIGN, *words, "--json"]
    done = subprocess.run(command, cwd=SCENE, env=env, capture_output=True, text=True, timeout=240, check=False)
    try:
        return done.returncode, json.loads(done.stdout), time.monotonic() - began
    except json.JSONDecodeError:
        sys.exit(f"servers: `{' '.join(words)}` said nothing that can be read: {done.stdout[-500:]}{done.stderr[-1500:]}")


failed = []


def check(what: str, fine: bool, more: object = "") -> None:
    print(f"  {'ok    ' if fine else 'FAILED'}  {what}" + ("" if fine else f": {more}"), flush=True)
    if not fine:
        failed.append(what)


def call(how: str, name: str, arguments: dict, config: Path) -> tuple[int, dict]:
    words = ["call", how, f"--tool-name={name}", "--json_args", json.dumps(arguments), "--config", str(config)]
    code, answer, _ = run(*words)
    return code, answer


FILES.mkdir()
(FILES / "note.txt").write_text("a note\n")
config = SCENE / "countersign.toml"
configure(config, list(SERVERS))
# One by one into the same store: together they outlast the time a command waits for upstreams on a busy machine.
live: list[dict] = []
began = time.monotonic()
for server in SERVERS:
    alone = SCENE / "alone.toml"
    configure(alone, [server])
    _, answer, _ = run("tools", "list", "--live", "--config", str(alone))
    live += answer["data"]["tools"]
    check(f"{server} lists {len(answer['data']['tools'])} tools", bool(answer["data"]["tools"]), answer.get("warnings"))
print(f"  {len(SERVERS)} servers, {len(live)} tools, listed in {time.monotonic() - began:.1f} s", flush=True)

# The records alone: no server could be started now.
text = config.read_text()
config.write_text(text.replace(NODE, "/nonexistent/node").replace(str(CACHE / "python"), "/nonexistent"))
code, recorded, took = run("tools", "list")
names = lambda tools: sorted((tool["name"], tool["effect"], tool["fingerprint"]) for tool in tools)
same = names(recorded["data"]["tools"]) == names(live)
check("the records list the same without starting a server", same and took < 10, f"{took:.1f} s")
config.write_text(text)

configure(alone, ["tasks", "filesystem", "gitlab"])
code, refused = call("tool-read", "tasks:list_requests", {}, alone)
check("a read that nobody accepted does not run", code != 0, refused)
code, proposed, _ = run("tools", "classify")
proposals = {one["tool"]: one for one in proposed["data"]["proposals"]}
wanted = ["tasks:list_requests", "gitlab:search_repositories", "linear:linear_search_issues", "maps:maps_search_places"]
check("reads are proposed with a reason", all(proposals.get(name, {}).get("why") for name in wanted), sorted(proposals))
changing = [name for name in proposals if any(word in name for word in ("create", "update", "delete", "push", "add", "approve"))]
check("no change is among them", not changing, changing)
check("proposals change nothing", config.read_text() == text)
code, accepted, _ = run("tools", "classify", "--yes")
check("they are accepted as rules about one definition", code == 0 and config.read_text().count("fingerprint = ") == len(accepted["data"].get("accepted", [])) > 0, accepted)
code, answer = call("tool-read", "tasks:list_requests", {}, config)
check("an accepted read runs", code == 0, answer)
code, answer = call("tool-read", "filesystem:read_text_file", {"path": str(FILES / "note.txt")}, alone)
check("an annotated read runs", code == 0 and "a note" in json.dumps(answer), answer)
code, answer = call("tool-write", "gitlab:create_branch", {"project_id": "1", "branch": "b"}, alone)
check("a write does not run unasked", code in (3, 4), answer)

sys.exit(f"servers: {len(failed)} failed" if failed else 0)
