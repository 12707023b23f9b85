#!/usr/bin/env python3
"""A real MCP client, the Python SDK: connects, lists the tools, calls one, prints what it saw as one JSON object.

python_client.py [--era legacy|modern|auto] [--tool NAME] [--args JSON] [--elicit accept|decline|cancel] TARGET...

TARGET is a URL or a command with its arguments. Without --elicit the client does not offer elicitation.
To be run with .cache/peers/python/bin/python.
"""

import argparse
import asyncio
import json
import sys
from importlib.metadata import version

from mcp import Client, StdioServerParameters, types

MODES = {"legacy": "legacy", "modern": "2026-07-28", "auto": "auto"}


def filled(schema: dict) -> dict:
    """A form filled in the simplest way its schema allows."""
    simplest = {"boolean": True, "integer": 1, "number": 1, "string": "yes", "array": []}
    fields = {}
    for name, field in schema.get("properties", {}).items():
        choices = field.get("enum") or [choice["const"] for choice in field.get("oneOf", [])]
        fields[name] = field.get("default", choices[0] if choices else simplest.get(field.get("type"), "yes"))
    return fields


async def see(options: argparse.Namespace) -> dict:
    asked = []

    async def elicit(_context, params) -> types.ElicitResult:
        asked.append(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        content = filled(asked[-1].get("requestedSchema", {})) if options.elicit == "accept" else None
        return types.ElicitResult(action=options.elicit, content=content)

    first, *rest = options.target
    server = first if first.startswith(("http://", "https://")) else StdioServerParameters(command=first, args=rest)
    client = Client(
        server,
        mode=MODES[options.era],
        elicitation_callback=elicit if options.elicit else None,
        client_info=types.Implementation(name="countersign-peer-python", version="1"),
        read_timeout_seconds=20,
    )
    async with client:
        listed = await client.list_tools()
        seen = {
            "client": f"python mcp {version('mcp')}",
            "era": options.era,
            "protocol": client.protocol_version,
            "server": client.server_info and client.server_info.name,
            "tools": [tool.name for tool in listed.tools],
        }
        if options.tool:
            result = await client.call_tool(options.tool, json.loads(options.args))
            seen["result"] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        if asked:
            seen["asked"] = asked
        return seen


def innermost(fault: BaseException) -> BaseException:
    """The SDK wraps what happened in groups of exceptions."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault


def main() -> int:
    parser = argparse.ArgumentParser(prog="python_client.py")
    parser.add_argument("--era", choices=MODES, default="auto")
    parser.add_argument("--tool")
    parser.add_argument("--args", default="{}")
    parser.add_argument("--elicit", choices=["accept", "decline", "cancel"])
    parser.add_argument("target", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.target:
        parser.error("a URL or a command is missing")
    try:
        print(json.dumps(asyncio.run(asyncio.wait_for(see(options), 30))))
        return 0
    except BaseException as fault:  # noqa: BLE001: whatever it is, the test reads it from stdout
        fault = innermost(fault)
        told = {"fault": f"{type(fault).__name__}: {fault}"}
        if (error := getattr(fault, "error", None)) is not None:
            told["error"] = error.model_dump(mode="json", exclude_none=True)
        print(json.dumps(told))
        return 1


if __name__ == "__main__":
    sys.exit(main())
