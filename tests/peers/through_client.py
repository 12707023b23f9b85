#!/usr/bin/env -S python3 -B
"""The gateway as a client, for the conformance suite's client set.

through_client.py URL

Starts the gateway with URL as its one upstream and, over the gateway's stdin and stdout, uses everything it offers
once: every tool, resource and prompt. What the suite sees on its side is then the gateway's doing alone: this program
speaks plain JSON-RPC and shares no code with any SDK. The suite says in the environment which revision it plays. Where the
server wants somebody signed in, this program is the person: it opens the address that `upstreams login` shows.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import urllib.request

import scene

PATIENCE = 25  # seconds for one answer; the suite itself gives up after 30
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {}}
ROUNDS = 5


def filled(schema: dict) -> dict:
    """Arguments, or a form, in the simplest way a schema allows: defaults where it has them."""
    simplest = {"boolean": True, "integer": 1, "number": 1, "string": "us-west1", "array": [], "object": {}, "null": None}
    kind = lambda field: next(iter(field["type"]), "string") if isinstance(field.get("type"), list) else field.get("type")
    value = lambda field: field.get("default", (field.get("enum") or [simplest.get(kind(field), "x")])[0])
    return {name: value(field) for name, field in schema.get("properties", {}).items()}


def reply(request: dict) -> dict:
    """What a willing host answers to a question of the server."""
    match request["method"]:
        case "elicitation/create":
            return {"action": "accept", "content": filled(request["params"].get("requestedSchema", {}))}
        case "sampling/createMessage":
            return {"role": "assistant", "model": "peer", "content": {"type": "text", "text": "Paris"}}
        case "roots/list":
            return {"roots": [{"uri": "file:///peer", "name": "peer"}]}
        case _:
            return {}


# A person signs in at most so often.
LOGINS = 2
# What the suite calls the document that says who a client is, where there is one.
DOCUMENT = "https://conformance-test.local/client-metadata.json"


def log_in(serve: list[str]) -> bool:
    """Signs in as a person would: starts the command, opens the address it shows."""
    command = [*serve[:serve.index("serve")], "upstreams", "login", "peer", "--no-browser"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            print(line, end="", file=sys.stderr)
            if line.startswith("  http"):
                try:
                    urllib.request.urlopen(line.strip(), timeout=10).read()
                except OSError as fault:
                    print(f"the address could not be opened: {fault}", file=sys.stderr)
                    process.terminate()
        process.wait()
    return process.returncode == 0


class NeedsPerson(Exception):
    """The server wants somebody signed in."""


class Line:
    """One JSON-RPC line to the gateway."""

    def __init__(self, command: list[str], modern: bool):
        self.modern = modern
        self.last = 0
        self.answers: queue.Queue = queue.Queue()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message and "id" in message:
                self.send({"id": message["id"], "result": reply(message)})
            elif "id" in message:
                self.answers.put(message)
        self.answers.put({"error": {"message": "the gateway closed the line"}})

    def send(self, message: dict) -> None:
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict) -> dict:
        """The result, after as many rounds of questions as it takes; an error is a result too, and is shown."""
        if self.modern:
            params = params | {"_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "countersign-peer", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
            }}
        for _ in range(ROUNDS):
            self.last += 1
            self.send({"id": self.last, "method": method, "params": params})
            answer = self.answers.get(timeout=PATIENCE)
            if "upstreams login" in json.dumps(answer):
                raise NeedsPerson
            if "error" in answer:
                print(f"{method} {params.get('name', '')}: {json.dumps(answer['error'])}", file=sys.stderr)
                return {}
            result = answer["result"]
            if result.get("isError"):
                print(f"{method} {params.get('name', '')}: {json.dumps(result)[:600]}", file=sys.stderr)
            if result.get("resultType") != "input_required":
                return result
            again = {"inputResponses": {key: reply(asked) for key, asked in result.get("inputRequests", {}).items()}}
            if "requestState" in result:
                again["requestState"] = result["requestState"]
            params = {key: kept for key, kept in params.items() if key != "requestState"} | again
        return {}


def use_everything(line: Line, calls: dict[str, list[dict]]) -> None:
    if line.modern:
        offered = line.ask("server/discover", {}).get("capabilities", {})
    else:
        opening = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "countersign-peer", "version": "1"}}
        offered = line.ask("initialize", opening | {"capabilities": CAPABILITIES}).get("capabilities", {})
        line.send({"method": "notifications/initialized"})
    # Lists are answered at once, with what is there; a call waits for its server.
    line.ask("tools/call", {"name": "get_status", "arguments": {}})
    tools = line.ask("tools/list", {}).get("tools", [])
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools}
    if "json_schema_echo" in schemas:
        # This one wants to see what another tool's schema looked like when it arrived here.
        calls["json_schema_echo"] = [{"schema": schemas.get("json_schema_2020_12_tool", {})}]
    for tool in tools:
        for arguments in calls.get(tool["name"]) or [filled(tool["inputSchema"])]:
            line.ask("tools/call", {"name": tool["name"], "arguments": arguments})
    if "resources" in offered:
        for resource in line.ask("resources/list", {}).get("resources", []):
            line.ask("resources/read", {"uri": resource["uri"]})
    if "prompts" in offered:
        for prompt in line.ask("prompts/list", {}).get("prompts", []):
            line.ask("prompts/get", {"name": prompt["name"]})


def main(url: str) -> int:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    calls: dict[str, list[dict]] = {}
    for call in context.get("toolCalls", []):
        calls.setdefault(call["name"], []).append(call["arguments"])
    modern = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25") >= "2026-07-28"
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    oauth = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    alone = scenario.startswith("auth/client-credentials")
    if alone:
        oauth["grant"] = "client_credentials"
    if "private_key_pem" in context:
        oauth["private_key"] = context["private_key_pem"]
    if scenario in ("auth/basic-cimd",):
        oauth = {"client_id": DOCUMENT}
    peer = scene.upstream(url, **({"oauth": oauth} if oauth else {}))
    # The suite sees a client that connects once.
    with scene.gateway_command(peer, is_known=False) as command:
        if scenario.startswith("auth/") and not alone and not log_in(command):
            return 1
        for _ in range(LOGINS):
            line = Line(command, modern)
            try:
                use_everything(line, calls)
                return 0
            except NeedsPerson:
                if not log_in(command):
                    return 1
            except queue.Empty:
                print("no answer in time", file=sys.stderr)
                return 1
            finally:
                line.process.stdin.close()
                try:
                    line.process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    scene.end(line.process)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1]))
