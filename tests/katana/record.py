"""Prints definitions and previews of the real Katana MCP server as JSON: `record.py CALLS`, run by `drive.py`."""

import asyncio
import json
import sys

from fastmcp import Client
from katana_mcp.server import mcp


async def record(calls):
    """Each call's tool definition, arguments and preview."""
    kept = []
    async with Client(mcp) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        for name, args in calls:
            result = await client.call_tool_mcp(name, {**args, "preview": True})
            plain = {"by_alias": True, "exclude_none": True, "mode": "json"}
            kept.append({"definition": tools[name].model_dump(**plain), "args": args, "result": result.model_dump(**plain)})
    return kept


print(json.dumps(asyncio.run(record(json.loads(sys.argv[1])))))
