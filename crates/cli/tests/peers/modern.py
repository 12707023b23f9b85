"""A scripted upstream of the stateless revision: one tool, which writes a log message to whoever asked for log messages."""

import json
import sys

NEWEST = "2026-07-28"


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main():
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if "id" not in message:
            continue
        result = {"resultType": "complete"}
        if method == "server/discover":
            result |= {"supportedVersions": [NEWEST], "capabilities": {"tools": {}, "logging": {}}, "ttlMs": 0}
            result["cacheScope"] = "private"
        elif method == "tools/list":
            tool = {"name": "get_time", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
            result |= {"tools": [tool], "ttlMs": 0, "cacheScope": "private"}
        elif method == "tools/call":
            level = params.get("_meta", {}).get("io.modelcontextprotocol/logLevel")
            if level is not None:
                send({"method": "notifications/message", "params": {"level": level, "data": "looked at the clock"}})
            result["content"] = [{"type": "text", "text": "noon"}]
        else:
            send({"id": message["id"], "error": {"code": -32601, "message": f"no method {method}"}})
            continue
        send({"id": message["id"], "result": result})


main()
