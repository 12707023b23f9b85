"""Reads `Apply: call tool(a=1, …)` as an agent would, with Python's own parser; prints {"tool", "arguments"} as JSON."""

import ast
import json
import sys

text = sys.stdin.read().strip()
for start in ("Apply: call ", "Retry: call "):
    text = text.removeprefix(start)
call = ast.parse(text, mode="eval").body
assert isinstance(call, ast.Call) and not call.args, "a call with named arguments only"
arguments = {}
for keyword in call.keywords:
    value = ast.literal_eval(keyword.value)
    arguments.update(value if keyword.arg is None else {keyword.arg: value})
last = call.keywords[-1].arg if call.keywords else None
print(json.dumps({"tool": ast.unparse(call.func), "arguments": arguments, "last": last}))
