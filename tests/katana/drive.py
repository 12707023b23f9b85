"""The real Katana MCP server behind the gateway: every write tool previewed, confirmed, applied once, and its errors told.

    drive.py BINARY PRESET PYTHON [RECORD]

PYTHON is one with `katana-mcp-server` installed. The Katana API is `fake_api` on loopback. With RECORD, the definitions and
previews that the test in `crates/cli/tests/it/katana.rs` replays are written to that file.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import fake_api

UUID = "0b8f3a52-7c1e-4b83-9a55-000000000007"
DATE = "2026-02-01T00:00:00Z"

# Arguments a preview is readable for.
PREVIEWED = {
    "modify_item": {"id": 7, "type": "product", "update_header": {"name": "Ring"}},
    "delete_item": {"id": 7, "type": "product"},
    "update_stock_adjustment": {"id": 7, "reason": "recount"},
    "delete_stock_adjustment": {"id": 7},
    "create_customer": {"name": "Ada", "email": "ada@example.org"},
    "create_custom_field_definition": {"label": "Colour", "field_type": "shortText", "entity_type": "SalesOrder"},
    "create_purchase_order": {"supplier_id": 7, "location_id": 7, "order_number": "PO-8",
                              "items": [{"variant_id": 7, "quantity": 2, "price_per_unit": 5}]},
    "receive_purchase_order": {"order_id": 7, "items": [{"purchase_order_row_id": 7, "quantity": 2}]},
    "modify_purchase_order": {"id": 7, "update_header": {"additional_info": "by Friday"}},
    "delete_purchase_order": {"id": 7},
    "create_sales_order": {"customer_id": 7, "order_number": "SO-8", "items": [{"variant_id": 7, "quantity": 1}]},
    "modify_sales_order": {"id": 7, "update_header": {"additional_info": "a gift"}},
    "fulfill_order": {"order_id": 7, "order_type": "sales"},
    "delete_sales_order": {"id": 7},
    "delete_sales_return": {"id": 7},
    "create_manufacturing_order": {"variant_id": 7, "planned_quantity": 1, "location_id": 7},
    "modify_manufacturing_order": {"id": 7, "update_header": {"additional_info": "soon"}},
    "delete_manufacturing_order": {"id": 7},
    "create_stock_transfer": {"source_location_id": 7, "destination_location_id": 8, "expected_arrival_date": DATE,
                              "rows": [{"variant_id": 7, "quantity": 1}]},
    "modify_stock_transfer": {"id": 7, "update_header": {"additional_info": "soon"}},
    "delete_stock_transfer": {"id": 7},
    "create_bin_transfer": {"location_id": 7, "rows": [{"variant_id": 7, "quantity": 1, "source_bin_location_id": 7,
                            "target_bin_location_id": 8}]},
    "modify_bin_transfer": {"id": 7, "update_header": {"additional_info": "soon"}},
    "delete_bin_transfer": {"id": 7},
    "create_storage_bin": {"bin_name": "B-1", "location_id": 7},
    "add_serial_numbers": {"resource_type": "ManufacturingOrder", "resource_id": 7, "serial_numbers": ["S1"]},
    "delete_serial_numbers": {"resource_type": "ManufacturingOrder", "resource_id": 7, "ids": [7]},
    "rebuild_cache": {"entity_types": ["purchase_order"]},
}
# Writes without a preview of their own: the gateway computes one.
COMPUTED = {
    "create_item": {"type": "product", "name": "Ring", "sku": "RING"},
    "create_product": {"name": "Ring", "sku": "RING-P"},
    "create_material": {"name": "Tin", "sku": "TIN"},
}
# Arguments the server refuses, and a word of its reason.
REFUSED = {
    "create_stock_adjustment": ({"location_id": 7, "rows": [{"sku": "NONE", "quantity": 1}]}, "NONE"),
    "update_custom_field_definition": ({"definition_id": UUID, "label": "Hue"}, ""),
    "delete_custom_field_definition": ({"definition_id": UUID}, ""),
    "correct_manufacturing_order": ({"id": 7, "ingredient_changes": []}, "ingredient_changes"),
    "correct_sales_order": ({"id": 7, "line_changes": []}, "line_changes"),
    "correct_purchase_order": ({"id": 7, "row_changes": []}, "row_changes"),
    "manage_product_bom": ({"id": 7, "add_bom_rows": [{"ingredient_variant_id": 7, "quantity": 1}]}, "catalog"),
}
# Arguments whose preview says BLOCK.
BLOCKED = ("create_stock_transfer", {"source_location_id": 7, "destination_location_id": 7, "expected_arrival_date": DATE,
                                     "rows": [{"variant_id": 7, "quantity": 1}]})
DESTROYS = ("delete_", "modify_", "correct_", "fulfill_", "receive_", "update_", "manage_", "rebuild_", "create_custom_field")


class Gateway:
    """The gateway on stdio, and the person who decides."""

    def __init__(self, binary, preset, python, folder, api):
        self.binary, self.folder, self.number = binary, folder, 0
        env = {"KATANA_API_KEY": "test", "KATANA_BASE_URL": f"http://127.0.0.1:{api.server_port}/v1",
               "MCP_DISABLE_CACHE_WARMUP": "1", "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"),
               "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        listed = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
        (folder / "countersign.toml").write_text(
            '[gateway]\nmode = "execute"\n[confirm]\nhold = "0s"\n[limits]\ndrafts = "1000/min"\n'
            f'[upstreams.katana]\ncommand = {json.dumps(python)}\nargs = ["-m", "katana_mcp"]\n'
            f"env = {{ {listed} }}\ntimeout = \"2m\"\n")
        self.configs = ["--config", str(folder / "countersign.toml"), "--config", preset]
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
        self.child = subprocess.Popen([binary, "serve", *self.configs], cwd=folder, env=self.env, text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "drive", "version": "1"}}
        self.ask("initialize", hello)

    def ask(self, method, params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()
        while True:
            reply = json.loads(self.child.stdout.readline())
            if reply.get("id") == self.number and "method" not in reply:
                return reply["result"] if "result" in reply else reply

    def call(self, tool, args, **more):
        effect = "destructive" if tool.startswith(DESTROYS) else "write"
        given = {"name": f"katana:{tool}", "args": args, "intent": {"operation_type": effect}, **more}
        return self.ask("tools/call", {"name": f"call_tool_{effect}", "arguments": given})

    def approve(self, plan):
        done = subprocess.run([self.binary, "approve", plan, "--yes", *self.configs], cwd=self.folder, env=self.env,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def stop(self):
        self.child.stdin.close()
        self.child.wait(timeout=60)


def text_of(result):
    """What a model reads of a result."""
    return "\n".join(block.get("text", "") for block in result.get("content", []))


def writes(log):
    """How many writes reached the API."""
    return len(log.read_text().splitlines()) if log.exists() else 0


def check_preview(gateway, tool, args, log):
    """Previews, confirms and applies one tool, and brings its token back once more."""
    before = writes(log)
    held = gateway.call(tool, args)
    data = held["structuredContent"]["data"]
    assert data.get("status") == "confirmation_required", (tool, text_of(held))
    shown = data["preview"]["shown"]
    assert "$prefab" not in json.dumps(data), f"{tool}: the tree of window parts is not for models"
    if data["preview"]["source"] == "argument":
        said = json.loads(shown["content"][0]["text"])
        assert said["is_preview"] is True, (tool, said)
    assert writes(log) == before, f"{tool}: a preview changes nothing"
    token = {"confirm_token": data["confirm_token"], "yes": True}
    early = gateway.call(tool, args, **token)
    assert "E_APPROVAL_PENDING" in text_of(early), (tool, text_of(early))
    gateway.approve(data["plan_id"])
    ran = gateway.call(tool, args, **token)
    applied = writes(log)
    again = gateway.call(tool, args, **token)
    assert "E_CONFIRM_TOKEN_USED" in text_of(again), (tool, text_of(again))
    assert writes(log) == applied, f"{tool}: a spent token changes nothing"
    return applied - before, text_of(ran) if ran.get("isError") else None


def record_replies(python, folder, api, path):
    """Writes what the server itself answers, for the test that replays it."""
    calls = [("create_customer", PREVIEWED["create_customer"]), ("modify_purchase_order", PREVIEWED["modify_purchase_order"]),
             BLOCKED]
    code = pathlib.Path(__file__).with_name("record.py")
    env = {**os.environ, "KATANA_API_KEY": "test", "KATANA_BASE_URL": f"http://127.0.0.1:{api.server_port}/v1",
           "MCP_DISABLE_CACHE_WARMUP": "1", "HOME": str(folder)}
    done = subprocess.run([python, str(code), json.dumps(calls)], env=env, capture_output=True, text=True, check=True)
    pathlib.Path(path).write_text(done.stdout)


def main():
    binary, preset, python, *record = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        log = folder / "writes.log"
        api = fake_api.start(log)
        if record:
            record_replies(python, folder, api, record[0])
        gateway = Gateway(binary, preset, python, folder, api)
        found = gateway.ask("tools/call", {"name": "get_status", "arguments": {}})
        assert "katana" in text_of(found), found
        total, failures = 0, []
        for tool, args in {**PREVIEWED, **COMPUTED}.items():
            count, failed = check_preview(gateway, tool, args, log)
            print(f"{tool:34} {count} write(s)" + (f"  says: {failed!r}" if failed else ""))
            failures += [tool] if failed else []
            total += count
        for tool, (args, word) in REFUSED.items():
            refused = text_of(gateway.call(tool, args))
            assert refused.startswith("E_") and word in refused, (tool, refused)
            print(f"{tool:34} refused: {refused[:120]!r}")
        tool, args = BLOCKED
        blocked = gateway.call(tool, args)
        data = blocked["structuredContent"]["data"]
        assert data["blocks"] and "confirm_token" not in data, data
        print(f"{tool:34} blocked: {data['blocks'][0][:100]!r}")
        gateway.stop()
        assert not failures, f"applied, and the server could not read the answer: {failures}"
        print(f"{len(PREVIEWED) + len(COMPUTED) + len(REFUSED)} write tools, {total} writes, each once")


if __name__ == "__main__":
    main()
