"""A scripted upstream that keeps a record: MCP 2025-11-25 on stdio, tools chosen for the contract's tables.

RECORD names a file that gets one line for every tools/call received, before it is answered: the witness of what reached
the upstream. STATE names a JSON file that is read at every request, so that a test can change what is listed, what a dry
run says, which tool has to be called before a dry run works (`after`), which tools it has besides (`tools`), how it presents itself (`instructions`, `capabilities` besides tools), how long an answer is (`long`), let a
held call go, or make it read member names as Go's encoding/json does: without regard to case, the last one
wins (and up to a NUL, as readers of C strings do). It decides nothing and checks nothing.
"""

import json
import os
import sys
import threading
import time

RECORD = os.environ["RECORD"]
STATE = os.environ["STATE"]
WRITING = threading.Lock()


def state():
    try:
        with open(STATE, encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return {}


LIKE = {"\u017f": "s", "\u212a": "k", "\u0130": "i", "\u0131": "i"}


def folded(pairs):
    """An object as a reader that ignores case has it."""
    return {"".join(LIKE.get(c, c.lower()) for c in name.split("\0")[0]): value for name, value in pairs}


def read(line):
    return json.loads(line, object_pairs_hook=folded if state().get("fold") else None)


def text_argument(*names, **more):
    properties = {name: {"type": "string"} for name in names}
    properties.update(more)
    return {"type": "object", "properties": properties, "required": list(names)}


def tool(name, schema=None, **annotations):
    definition = {
        "name": name,
        "description": f"{name.replace('_', ' ')} of the notebook",
        "inputSchema": schema or text_argument("id"),
    }
    if annotations:
        definition["annotations"] = annotations
    return definition


def tools():
    listed = [
        tool("get_note", readOnlyHint=True),
        tool("put_note", text_argument("id", text={"type": "string"}, size={"type": "integer"})),
        tool("save_note", readOnlyHint=False, destructiveHint=False),
        tool("erase_all", destructiveHint=True),
        tool("wipe_notes"),
        tool("delete_view", readOnlyHint=True),
        tool("sync_notes", text_argument("id", dry_run={"type": "boolean", "description": "If true, no changes are made"})),
        tool("slow_note"),
        tool("fail_note"),
        tool("refuse_note", readOnlyHint=True),
        tool("exact_note", readOnlyHint=True, vendorHint="kept"),
        tool("store_direct"),
        tool("forbidden_note"),
        tool("spend_note", text_argument("id", amount={"type": "integer"})),
        tool("open_note", {"type": "object"}),
    ]
    listed += state().get("tools", [])
    change = state().get("change")
    for one in listed:
        if one["name"] == change:
            one["description"] += state().get("by", " and of everything else")
    return listed


# What is not ours to know must arrive as it was sent: order, spaces, numbers, fields of no protocol.
EXACT = (
    '{"content":[{"type":"text","text":"exact","vendor":{"z":1,"a":2}}],'
    '"structuredContent":{"big":12345678901234567890123,"small":0.10000000000000000555,"e":1E+2},'
    '"vendorField":[1.50,{"k" : null}],"_meta":{"vendor/key":12345678901234567890123}}'
)


def said(text, **more):
    return {"content": [{"type": "text", "text": text}], **more}


def called():
    with open(RECORD, encoding="utf-8") as file:
        return {json.loads(line)["name"] for line in file}


def answer(name, arguments):
    """The result of a call, as a value or as text that is sent as it stands."""
    if name == "exact_note":
        return EXACT
    if name == "sync_notes" and arguments.get("dry_run"):
        if "after" in state() and state()["after"] not in called():
            return said("there is no such note", isError=True)
        wording = state().get("preview", "2 notes would change")
        return said(wording, isError=wording == "fail")
    if name == "slow_note":
        deadline = time.monotonic() + 20
        while not state().get("go") and time.monotonic() < deadline:
            time.sleep(0.01)
    if name == "get_note" and state().get("long"):
        return said("x" * state()["long"])
    if name == "fail_note":
        return said("the notebook is full", isError=True)
    return said(f"{name} {arguments.get('id', '')}".strip())


def send(line):
    with WRITING:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def reply(message_id, result):
    body = result if isinstance(result, str) else json.dumps(result)
    send(f'{{"jsonrpc":"2.0","id":{json.dumps(message_id)},"result":{body}}}')


def fail(message_id, code, message):
    send(json.dumps({"jsonrpc": "2.0", "id": message_id, "error": {"code": code, "message": message}}))


def call(message, line):
    params = message["params"]
    name, arguments = params["name"], params.get("arguments", {})
    with WRITING:
        with open(RECORD, "a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "arguments": arguments, "line": line.strip()}) + "\n")
    if name == "refuse_note":
        fail(message["id"], -32050, "the notebook says no")
    else:
        reply(message["id"], answer(name, arguments))


def main():
    for line in sys.stdin:
        message = read(line)
        method = message.get("method")
        if "id" not in message or method is None:
            continue
        if method == "initialize":
            with open(RECORD + ".opened", "w", encoding="utf-8") as file:
                json.dump(message["params"], file)
            said_of_itself = {"instructions": state()["instructions"]} if "instructions" in state() else {}
            reply(
                message["id"],
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": True}, **state().get("capabilities", {})},
                    "serverInfo": {"name": "recorder", "version": "1"},
                    **said_of_itself,
                },
            )
        elif method == "tools/list":
            reply(message["id"], {"tools": tools()})
        elif method == "tools/call":
            # A call that is held must not keep the next one from being heard.
            threading.Thread(target=call, args=(message, line), daemon=True).start()
        elif method == "ping":
            reply(message["id"], {})
        else:
            fail(message["id"], -32601, f"no method {method}")


main()
