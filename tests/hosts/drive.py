"""Real hosts through the gateway, without any account: `init` points Claude Code and Codex at us, and they list and call a tool.

    drive.py COUNTERSIGN CLAUDE CODEX FOLDER

Claude Code runs its whole agent loop against a scripted model on loopback; Codex calls through its app server.
The witness is our own ledger: the call's row is there, with the arguments the host was told to send.
"""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ECHO = "from the host, héllo"
ARGS = {"name": "echo:echo", "args": {"message": ECHO}, "intent": {"operation_type": "read"}}


def say(text):
    print(f"hosts: {text}", flush=True)


def fail(text):
    say(f"FAILED: {text}")
    sys.exit(1)


class Model(http.server.BaseHTTPRequestHandler):
    """Answers the first question that offers our tool with a call of it, and everything else with a word."""

    results = []
    offered = set()
    tool = "mcp__countersign__call_tool_read"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()

    def do_GET(self):
        self.answer(b"{}")

    def answer(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        request = json.loads(self.rfile.read(length) or b"{}")
        if "count_tokens" in self.path:
            return self.answer(b'{"input_tokens": 1}')
        tools = {tool["name"] for tool in request.get("tools", [])}
        Model.offered |= {name for name in tools if name.startswith("mcp__countersign__")}
        last = request.get("messages", [{}])[-1].get("content")
        answered = [part for part in last if part.get("type") == "tool_result"] if isinstance(last, list) else []
        Model.results += answered
        wants = Model.tool in tools and not answered and not Model.results
        block = (
            {"type": "tool_use", "id": "toolu_1", "name": Model.tool, "input": {}}
            if wants
            else {"type": "text", "text": ""}
        )
        delta = (
            {"type": "input_json_delta", "partial_json": json.dumps(ARGS)}
            if wants
            else {"type": "text_delta", "text": "done"}
        )
        message = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model", "m"), "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        stop = "tool_use" if wants else "end_turn"
        if not request.get("stream"):
            full = dict(block, input=ARGS) if wants else {"type": "text", "text": "done"}
            return self.answer(json.dumps(dict(message, content=[full], stop_reason=stop)).encode())
        events = [
            ("message_start", {"message": message}),
            ("content_block_start", {"index": 0, "content_block": block}),
            ("content_block_delta", {"index": 0, "delta": delta}),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}}),
            ("message_stop", {}),
        ]
        body = "".join(f"event: {name}\ndata: {json.dumps(dict(data, type=name))}\n\n" for name, data in events)
        self.answer(body.encode(), "text/event-stream")


class Responses(http.server.BaseHTTPRequestHandler):
    """The same for Codex, which speaks to its model otherwise."""

    tool = None
    results = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        Responses.results += [item for item in request.get("input", []) if item.get("type") == "function_call_output"]
        groups = [tool["name"] for tool in request.get("tools", []) if "countersign" in tool.get("name", "")]
        if Responses.tool and groups:
            item = {
                "type": "function_call", "id": "fc_1", "call_id": f"call_{Responses.tool}", "namespace": groups[0],
                "name": Responses.tool, "arguments": json.dumps(ARGS),
            }
            Responses.tool = None
        else:
            item = {
                "type": "message", "id": "msg_1", "role": "assistant",
                "content": [{"type": "output_text", "text": "done"}],
            }
        usage = {
            "input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
            "total_tokens": 2,
        }
        events = [
            ("response.created", {"response": {"id": "resp_1"}}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            ("response.completed", {"response": {"id": "resp_1", "usage": usage}}),
        ]
        body = "".join(f"event: {name}\ndata: {json.dumps(dict(data, type=name))}\n\n" for name, data in events)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


class Scene:
    """A home of its own, with hosts that have one server each."""

    def __init__(self, countersign, folder):
        self.countersign = countersign
        self.folder = pathlib.Path(folder)
        self.home, self.project = self.folder / "home", self.folder / "project"
        self.codex = self.folder / "codex"
        for one in (self.home, self.project, self.codex):
            one.mkdir(parents=True, exist_ok=True)
        server = self.folder / "echo-server"
        if not server.exists():
            server.symlink_to(countersign)
        entry = {"type": "stdio", "command": str(server), "args": ["bench-echo"], "env": {}}
        (self.home / ".claude.json").write_text(json.dumps({"numStartups": 3, "mcpServers": {"echo": entry}}, indent=2))
        (self.codex / "config.toml").write_text(
            f'# mine\n[mcp_servers.echo]\ncommand = "{server}"\nargs = ["bench-echo"]\n'
        )
        # What the machine's own tools need, and nothing that tells a host who we are.
        self.env = {
            "HOME": str(self.home), "CODEX_HOME": str(self.codex), "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "false",
        }

    def run(self, *words, timeout=120, **more):
        env = dict(self.env, **more.pop("env", {}))
        return subprocess.run(
            [str(word) for word in words], cwd=self.project, env=env, text=True, capture_output=True, timeout=timeout,
            stdin=subprocess.DEVNULL, **more,
        )

    def rows(self):
        config = self.home / ".config/countersign/countersign.toml"
        listed = self.run(self.countersign, "activity", "list", "--config", config, "--json")
        return json.loads(listed.stdout)["data"]["activities"]


def claude(scene, program):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    env = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}", "ANTHROPIC_API_KEY": "none"}
    listed = scene.run(program, "mcp", "list", env=env)
    if "countersign" not in listed.stdout or "Connected" not in listed.stdout:
        fail(f"`claude mcp list` does not see us: {listed.stdout} {listed.stderr}")
    say("claude mcp list: " + " ".join(line for line in listed.stdout.splitlines() if line.startswith("countersign")))
    before = len(scene.rows())
    # Nobody is there to be asked: what runs is what `init --permissions` allowed.
    ran = scene.run(program, "-p", "go", "--output-format", "json", env=env)
    wanted = {f"mcp__countersign__call_tool_{kind}" for kind in ("read", "write", "destructive")}
    if not wanted <= Model.offered:
        fail(f"Claude Code did not offer our tools: {sorted(Model.offered)}\n{ran.stdout}\n{ran.stderr}")
    if not any(ECHO in json.dumps(result, ensure_ascii=False) for result in Model.results):
        fail(f"Claude Code got no echo: {Model.results}\n{ran.stdout}\n{ran.stderr}")
    witness(scene, before, "Claude Code")
    before = len(scene.rows())
    Model.tool = "mcp__countersign__call_tool_destructive"
    # Also where every permission is bypassed: a rule that asks comes first. (It wants to hear that nothing can be broken here.)
    for mode in ("default", "bypassPermissions"):
        Model.results = []
        ran = scene.run(
            program, "-p", "go", "--permission-mode", mode, "--output-format", "json", env=dict(env, IS_SANDBOX="1")
        )
        if not any(result.get("is_error") and "permission" in json.dumps(result) for result in Model.results):
            fail(f"Claude Code does not ask before a destructive call ({mode}): {Model.results}\n{ran.stdout}\n{ran.stderr}")
    server.shutdown()
    if len(scene.rows()) != before:
        fail(f"a call nobody allowed came through: {scene.rows()[0]}")
    say("Claude Code looks without asking, and asks before what destroys, also where permissions are bypassed")


def codex(scene, program):
    before = len(scene.rows())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Responses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    provider = f'{{name="loopback", base_url="http://127.0.0.1:{server.server_port}/v1", wire_api="responses"}}'
    settings = ['model="scripted"', 'model_provider="loopback"', f"model_providers.loopback={provider}"]
    child = subprocess.Popen(
        [program, "app-server", *(word for setting in settings for word in ("-c", setting))], cwd=scene.project, env=scene.env, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )
    timer = threading.Timer(120, child.kill)
    timer.start()
    number, questions = 0, []

    def ask(method, params, until=None):
        nonlocal number
        number += 1
        child.stdin.write(json.dumps({"id": number, "method": method, "params": params}) + "\n")
        child.stdin.flush()
        result = None
        for line in child.stdout:
            reply = json.loads(line)
            if reply.get("id") == number and "method" not in reply:
                if "error" in reply:
                    fail(f"{method}: {reply['error']}")
                result = reply["result"]
            if "id" in reply and "method" in reply:
                # A question of the host to its person: nobody is here, so no.
                questions.append(reply)
                child.stdin.write(json.dumps({"id": reply["id"], "result": {"action": "decline"}}) + "\n")
                child.stdin.flush()
            if result is not None and until in (None, reply.get("method")):
                return result
        fail(f"{method}: codex closed the line")

    def turn(thread, tool):
        Responses.tool, Responses.results = tool, []
        questions.clear()
        ask("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "go"}]}, until="turn/completed")
        return json.dumps(Responses.results, ensure_ascii=False)

    try:
        ask("initialize", {"clientInfo": {"name": "test", "version": "1"}, "capabilities": {"experimentalApi": True}})
        child.stdin.write(json.dumps({"method": "initialized"}) + "\n")
        child.stdin.flush()
        status = ask("mcpServerStatus/list", {})
        ours = [server for server in status["data"] if server["name"] == "countersign"]
        if not ours or "call_tool_read" not in json.dumps(ours[0]["tools"]):
            fail(f"Codex does not list our tools: {status}")
        if len(status["data"]) != 1:
            fail(f"Codex has more than one server: {[server['name'] for server in status['data']]}")
        say(f"codex lists {len(ours[0]['tools'])} tools of countersign")
        thread = ask("thread/start", {"cwd": str(scene.project)})["thread"]["id"]
        called = ask("mcpServer/tool/call", {
            "threadId": thread, "server": "countersign", "tool": "call_tool_read", "arguments": ARGS,
        })
        if ECHO not in json.dumps(called, ensure_ascii=False):
            fail(f"Codex got no echo: {called}")
        # Its whole agent loop, under the rules `init --permissions` wrote.
        told = turn(thread, "call_tool_read")
        if ECHO not in told or questions:
            fail(f"Codex does not look without asking: {told} {questions}")
        told = turn(thread, "call_tool_destructive")
        if "rejected" not in told or [one["method"] for one in questions] != ["mcpServer/elicitation/request"]:
            fail(f"Codex does not ask before a destructive call: {told} {questions}")
        if "persist" in questions[0]["params"]["_meta"]:
            fail(f"Codex offers to ask no more: {questions}")
        say("Codex looks without asking, and asks before what destroys, every time")
        # Rows of reads may follow within 100 ms, and Codex does not ask its servers to end.
        time.sleep(1)
    finally:
        timer.cancel()
        server.shutdown()
        child.stdin.close()
        child.terminate()
        child.wait(timeout=20)
    witness(scene, before, "Codex")


def witness(scene, before, host):
    rows = scene.rows()
    done = [row for row in rows if row.get("tool") == "echo" and row["status"] == "success"]
    if len(rows) <= before or not done:
        fail(f"the ledger has no row of {host}'s call: {rows}")
    say(f"{host} called a tool through us: ledger row {done[0]['id']}")


def by_hand(scene, program):
    """The guide's own command, with the paths of this scene."""
    guide = (pathlib.Path(__file__).parents[2] / "docs/guide/gateway.md").read_text()
    said = next(line for line in guide.splitlines() if line.startswith("claude mcp add "))
    config = scene.project / "countersign.toml"
    config.write_text('[gateway]\nmode = "ask"\n')
    places = {"claude": program, "/absolute/path/countersign.toml": str(config)}
    words = [places.get(word, word) for word in said.split()]
    words[words.index("--") + 1] = str(scene.countersign)
    added = scene.run(*words)
    listed = scene.run(program, "mcp", "list")
    if added.returncode != 0 or not any("countersign" in line and "Connected" in line for line in listed.stdout.splitlines()):
        fail(f"`{said}`: {added.stdout}{added.stderr}{listed.stdout}{listed.stderr}")
    say(f"by hand: {said}")


def main():
    countersign, claude_bin, codex_bin, folder = sys.argv[1:]
    scene = Scene(countersign, folder)
    made = scene.run(countersign, "init", "--permissions", "--yes")
    if made.returncode != 0:
        fail(f"init: {made.stdout}{made.stderr}")
    claude(scene, claude_bin)
    codex(scene, codex_bin)
    doctor = scene.run(countersign, "doctor", "--no-start", "--json", "--config", scene.home / ".config/countersign/countersign.toml")
    checks = json.loads(doctor.stdout)["data"]["checks"]
    leads = [check["message"] for check in checks if "leads to countersign" in check["message"]]
    if len(leads) < 2:
        fail(f"doctor does not see both hosts: {checks}")
    undone = scene.run(countersign, "init", "--undo")
    settings = scene.home / ".claude/settings.json"
    if undone.returncode != 0 or "echo-server" not in (scene.home / ".claude.json").read_text():
        fail(f"undo: {undone.stdout}{undone.stderr}")
    if settings.exists() and "countersign" in settings.read_text():
        fail(f"undo left rules behind: {settings.read_text()}")
    say("init --undo gave the hosts back")
    by_hand(scene, claude_bin)


main()
