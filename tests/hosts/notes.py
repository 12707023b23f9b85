"""An MCP server over stdio with one tool that looks and one that changes a file, both with an `outputSchema`: notes.py FILE"""

import json
import pathlib
import sys

FILE = pathlib.Path(sys.argv[1])
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], "additionalProperties": False}
# Closed: an answer of ours would not pass for one of the tools' own.
NOTES = {
    "type": "object", "properties": {"notes": {"type": "array", "items": {"type": "string"}}}, "required": ["notes"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "name": "list_notes", "description": "All notes", "inputSchema": {"type": "object"}, "outputSchema": NOTES,
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "add_note", "description": "Adds a note", "inputSchema": TEXT, "outputSchema": NOTES,
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    },
]


def result(method, params):
    if method == "initialize":
        info = {"name": "notes", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if params["name"] == "add_note":
        with FILE.open("a") as file:
            file.write(params["arguments"]["text"] + "\n")
    text = FILE.read_text()
    # Shows that a client holds answers against the schema.
    fits = not params["arguments"].get("misfit")
    structured = {"notes": text.splitlines()} if fits else {"status": "misfit"}
    return {"content": [{"type": "text", "text": "notes: " + text}], "structuredContent": structured}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        known = request["method"] in ("initialize", "tools/list", "tools/call")
        body = {"result": result(request["method"], request.get("params"))} if known else {
            "error": {"code": -32601, "message": "no such method"}
        }
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **body}), flush=True)
