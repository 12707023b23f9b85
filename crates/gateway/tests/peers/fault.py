"""An MCP server on stdio that misbehaves on request: each tool is one way to fail.

It speaks 2025-11-25 only. Every call of a tool that is not `echo` first leaves its name in the file EFFECTS, except where
dying before the effect is the point, so that a test can tell what was acted on.
"""
import json
import os
import signal
import sys
import time

out = sys.stdout.buffer


def send(message, end=b"\n"):
    out.write(json.dumps(message).encode() + end)
    out.flush()


def reply(id, text="done"):
    send({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})


def effect(name):
    with open(os.environ["EFFECTS"], "a") as log:
        log.write(name + "\n")


def tools(count):
    return [{"name": f"tool_{n}", "inputSchema": {"type": "object"}} for n in range(count)]


def list_tools(id, params):
    kind = os.environ.get("LISTS", "few")
    cursor = (params or {}).get("cursor")
    if kind == "many":
        at = int(cursor or 0)
        page = tools(10_000)[at : at + 500]
        result = {"tools": page}
        if at + 500 < 10_000:
            result["nextCursor"] = str(at + 500)
    elif kind == "circle":
        result = {"tools": tools(1), "nextCursor": "again"}
    elif kind == "file":
        with open(os.environ["TOOLS"]) as given:
            result = {"tools": json.load(given)}
    elif kind == "none":
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no tools here"}})
        return
    else:
        result = {"tools": tools(3)}
    send({"jsonrpc": "2.0", "id": id, "result": result})


def call(id, params):
    name = params["name"]
    if name == "echo":
        reply(id, json.dumps(params))
        return
    if name == "exit_before":
        sys.stderr.write("cannot go on\n")
        sys.stderr.flush()
        os._exit(3)
    effect(name)
    if name == "exit_after":
        os._exit(4)
    elif name == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        reply(id)
    elif name == "no_newline":
        send({"jsonrpc": "2.0", "id": id, "result": {}}, end=b"")
    elif name == "drip":
        for byte in json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}).encode():
            out.write(bytes([byte]))
            out.flush()
            time.sleep(1)
    elif name == "long_line":
        reply(id, "x" * (17 << 20))
    elif name == "bad_utf8":
        out.write(b'{"jsonrpc":"2.0","id":' + str(id).encode() + b',"result":{"text":"\xff\xfe"}}\n')
        out.flush()
    elif name == "noise":
        out.write(b"Listening on port 3000...\n\x1b[32mready\x1b[0m\n{\"half\": \n[]\nnull\n")
        out.flush()
        reply(id)
    elif name == "wrong_id":
        reply(id + 1_000_000)
        reply("abc")
    elif name == "duplicate":
        reply(id, "first")
        reply(id, "second")
    elif name == "late":
        time.sleep(float(params["arguments"]["seconds"]))
        reply(id)
    elif name == "stderr_flood":
        for _ in range(1024):
            sys.stderr.write("e" * 8191 + "\n")
        sys.stderr.write("the last line\n")
        sys.stderr.flush()
        reply(id)
    elif name == "storm":
        for n in range(10_000):
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {"n": n}})
        reply(id)
    elif name == "fork":
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(60)
        reply(id, str(child))
    elif name == "closes_stdout":
        os.close(1)
        time.sleep(60)
    elif name == "pid":
        reply(id, str(os.getpid()))
    elif name == "environment":
        reply(id, json.dumps(sorted(os.environ)))
    elif name == "silent":
        pass
    elif name == "error":
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32050, "message": "no", "data": {"x": 1}}})


for line in sys.stdin.buffer:
    try:
        message = json.loads(line)
    except ValueError:
        continue
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        with open(os.environ["EFFECTS"], "a") as log:
            log.write("opened\n")
        info = {"name": "fault", "version": "1"}
        caps = {"tools": {"listChanged": True}}
        version = message["params"]["protocolVersion"]
        send({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": version, "capabilities": caps, "serverInfo": info}})
    elif method == "tools/list":
        list_tools(id, message.get("params"))
    elif method == "tools/call":
        call(id, message["params"])
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}})
