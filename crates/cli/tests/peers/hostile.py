"""An upstream that says what a test tells it to: MCP on stdio, in either era.

PLAN names a JSON file: `era` ("legacy" or "modern"), `name`, `tools` (names), `calls` (by tool: `ask`, a list of requests to put
to the client; `notes`, notifications to send first; `result` or `error` to end with), `resources` and `templates` (URIs),
`prompts` (names), `list` (members added to every list's items). RECORD names a file that gets one line for every message.
"""

import json
import os
import sys

with open(os.environ["PLAN"], encoding="utf-8") as file:
    PLAN = json.load(file)
RECORD = os.environ["RECORD"]
MODERN = PLAN.get("era") == "modern"
WAITING = []


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    with open(RECORD, "a", encoding="utf-8") as file:
        file.write(line)
    return json.loads(line)


def done(result):
    if MODERN:
        result.setdefault("resultType", "complete")
        result.setdefault("ttlMs", 0)
        result.setdefault("cacheScope", "private")
    return result


def said(value):
    return done({"content": [{"type": "text", "text": json.dumps(value)}]})


def answer_to(number):
    while True:
        message = read()
        if message.get("id") == f"q{number}" and "method" not in message:
            return message.get("result", message.get("error"))
        WAITING.append(message)


def call(message):
    params = message["params"]
    script = PLAN["calls"].get(params["name"], {})
    for note in script.get("notes", []):
        send(note)
    asks = script.get("ask", [])
    answers = {}
    if asks and MODERN:
        if "inputResponses" not in params:
            requests = {f"q{number}": ask for number, ask in enumerate(asks)}
            return send({"id": message["id"], "result": {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}})
        answers = params["inputResponses"]
    else:
        for number, ask in enumerate(asks):
            send({"id": f"q{number}", **ask})
            answers[f"q{number}"] = answer_to(number)
    if "error" in script:
        return send({"id": message["id"], "error": script["error"]})
    send({"id": message["id"], "result": done(script["result"]) if "result" in script else said(answers)})


def listed(member, field, names):
    more = PLAN.get("list", {})
    return done({member: [{"name": str(name), field: name, **more} for name in names]})


def tool(name):
    return {"name": name, "description": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}, **PLAN.get("list", {})}


def result(method, params):
    offered = {"tools": {"listChanged": True}, "resources": {}, "prompts": {}, "completions": {}}
    info = {"name": "hostile", "version": "1"}
    who = PLAN.get("name", "")
    if method == "initialize" and not MODERN:
        return {"protocolVersion": "2025-11-25", "capabilities": offered, "serverInfo": info}
    if method == "server/discover" and MODERN:
        return done({"supportedVersions": ["2026-07-28"], "capabilities": offered, "serverInfo": info})
    if method == "tools/list":
        return done({"tools": [tool(name) for name in PLAN.get("tools", [])]})
    if method == "resources/list":
        return listed("resources", "uri", PLAN.get("resources", []))
    if method == "resources/templates/list":
        return listed("resourceTemplates", "uriTemplate", PLAN.get("templates", []))
    if method == "prompts/list":
        return listed("prompts", "name", PLAN.get("prompts", []))
    if method == "resources/read":
        return done({"contents": [{"uri": params["uri"], "text": f"read by {who}"}]})
    if method == "prompts/get":
        return done({"messages": [{"role": "user", "content": {"type": "text", "text": f"prompt of {who}"}}]})
    if method == "completion/complete":
        return done({"completion": {"values": [who]}})
    if method in ("resources/subscribe", "resources/unsubscribe", "ping") or method.startswith("acme/"):
        return done({})
    return None


def main():
    while True:
        message = WAITING.pop(0) if WAITING else read()
        method = message.get("method")
        if "id" not in message or method is None:
            continue
        if method == "tools/call":
            call(message)
            continue
        found = result(method, message.get("params") or {})
        if found is None:
            send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
        else:
            send({"id": message["id"], "result": found})


main()
