"""A Katana API on loopback: enough of its REST to preview and apply every write of the real MCP server.

Every collection is a dictionary that starts with one entity of id 7. Reads of an id that is not there are 404 with the
reason in Katana's words. Each write is a line of the log, so that a test can count what was applied.
"""

import json
import re
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NOW = "2026-01-31T12:00:00.000Z"

# What entities of a collection need besides an id, as far as the server reads it.
ENTITIES = {
    "customers": {"name": "Ada", "currency": "EUR"},
    "suppliers": {"name": "Taiko", "currency": "EUR"},
    "locations": {"name": "Main", "is_primary": True},
    "variants": {"sku": "CHAIN-8S", "product_id": 7, "type": "product", "sales_price": 12, "purchase_price": 5},
    "products": {"name": "Chain", "uom": "pcs", "type": "product", "is_sellable": True, "is_producible": True,
                 "is_purchasable": True, "variants": [{"id": 7, "sku": "CHAIN-8S", "product_id": 7}]},
    "materials": {"name": "Steel", "uom": "kg", "type": "material", "variants": [{"id": 7, "sku": "STEEL", "material_id": 7}]},
    "services": {"name": "Milling", "uom": "h", "type": "service", "variants": []},
    "purchase_orders": {"order_no": "PO-7", "status": "NOT_RECEIVED", "supplier_id": 7, "location_id": 7, "currency": "EUR",
                        "entity_type": "regular", "purchase_order_rows": [{"id": 7, "variant_id": 7, "quantity": 2,
                        "price_per_unit": 5, "purchase_order_id": 7}]},
    "purchase_order_rows": {"variant_id": 7, "quantity": 2, "price_per_unit": 5, "purchase_order_id": 7},
    "sales_orders": {"order_no": "SO-7", "status": "NOT_SHIPPED", "customer_id": 7, "location_id": 7, "currency": "EUR",
                     "sales_order_rows": [{"id": 7, "variant_id": 7, "quantity": 2, "price_per_unit": 12, "sales_order_id": 7}]},
    "sales_order_rows": {"variant_id": 7, "quantity": 2, "price_per_unit": 12, "sales_order_id": 7},
    "sales_returns": {"order_no": "SR-7", "status": "NOT_RETURNED", "customer_id": 7, "sales_order_id": 7},
    "manufacturing_orders": {"order_no": "MO-7", "status": "NOT_STARTED", "variant_id": 7, "location_id": 7,
                             "planned_quantity": 1},
    "manufacturing_order_recipe_rows": {"manufacturing_order_id": 7, "variant_id": 7, "planned_quantity_per_unit": 1},
    "stock_adjustments": {"stock_adjustment_number": "SA-7", "location_id": 7, "reason": "count",
                          "stock_adjustment_rows": [{"id": 7, "variant_id": 7, "quantity": 1}]},
    "stock_transfers": {"stock_transfer_number": "ST-7", "source_location_id": 7, "target_location_id": 8, "status": "draft",
                        "stock_transfer_rows": [{"id": 7, "variant_id": 7, "quantity": 1}]},
    "bin_transfers": {"bin_transfer_number": "BT-7", "location_id": 7, "status": "CREATED", "bin_transfer_rows": []},
    "bin_locations": {"bin_name": "A-1", "location_id": 7},
    "bom_rows": {"product_id": 7, "product_variant_id": 7, "ingredient_variant_id": 7, "quantity": 1},
}


# Collections whose ids are UUIDs.
BY_UUID = {"custom_field_definitions", "bom_rows"}


def with_row_ids(given):
    """Rows of what is created get ids as well."""
    def numbered(value):
        if isinstance(value, list) and all(isinstance(row, dict) for row in value):
            return [{"id": 200 + at, "bin_transfer_id": 7, **row} for at, row in enumerate(value)]
        return value
    return {name: numbered(value) for name, value in given.items()}


class Katana(ThreadingHTTPServer):
    """The API, and what was written to it."""

    daemon_threads = True

    def __init__(self, log_path):
        super().__init__(("127.0.0.1", 0), Handler)
        self.entities = {}
        self.lock = threading.Lock()
        self.log_path = log_path

    def collection(self, name):
        if name not in self.entities:
            first = {"id": 7, "created_at": NOW, "updated_at": NOW, **ENTITIES.get(name, {})}
            self.entities[name] = {"7": first}
            if name == "locations":
                self.entities[name]["8"] = {**first, "id": 8, "name": "Spare", "is_primary": False}
        return self.entities[name]

    def written(self, method, path, body):
        with open(self.log_path, "a", encoding="utf-8") as log:
            log.write(json.dumps([method, path, body]) + "\n")


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def target(self):
        parts = re.sub(r"^/v1/", "", self.path.split("?")[0]).strip("/").split("/")
        return parts[0], parts[1] if len(parts) > 1 else None

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")

    def missing(self, name, key):
        message = f"{name} {key} does not exist"
        self.answer(404, {"statusCode": 404, "name": "NotFoundError", "message": message})

    def do_GET(self):
        name, key = self.target()
        with self.server.lock:
            all_of = self.server.collection(name)
            if key is None:
                self.answer(200, {"data": list(all_of.values())})
            elif key in all_of:
                self.answer(200, all_of[key])
            else:
                self.missing(name, key)

    def do_POST(self):
        name, key = self.target()
        body = self.body()
        with self.server.lock:
            self.server.written("POST", self.path, body)
            if name == "purchase_order_receive":
                return self.answer(204)
            if name == "serial_numbers":
                return self.answer(200, {"successful": [], "failed": []})
            all_of = self.server.collection(name)
            given = body if isinstance(body, dict) else {}
            key = str(uuid.uuid4()) if name in BY_UUID else 100 + len(all_of)
            made = {**ENTITIES.get(name, {}), **with_row_ids(given), "id": key, "created_at": NOW, "updated_at": NOW}
            all_of[str(made["id"])] = made
        return self.answer(200, made)

    def do_PATCH(self):
        name, key = self.target()
        body = self.body()
        with self.server.lock:
            all_of = self.server.collection(name)
            if key not in all_of:
                return self.missing(name, key)
            self.server.written("PATCH", self.path, body)
            all_of[key] = {**all_of[key], **body}
            return self.answer(200, all_of[key])

    def do_DELETE(self):
        name, key = self.target()
        self.body()
        with self.server.lock:
            all_of = self.server.collection(name)
            if key is not None and key not in all_of:
                return self.missing(name, key)
            self.server.written("DELETE", self.path, None)
            all_of.pop(key, None)
            return self.answer(204)


def start(log_path):
    """Starts the API in a thread and returns it."""
    api = Katana(log_path)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    return api


if __name__ == "__main__":
    served = Katana(sys.argv[1])
    print(f"http://127.0.0.1:{served.server_port}/v1", flush=True)
    served.serve_forever()
