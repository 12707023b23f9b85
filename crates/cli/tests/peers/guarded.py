"""An MCP server that wants people signed in, and the authorization server that signs them in, on one loopback port.

guarded.py HABITS RECORD   prints its port; HABITS is a JSON object of how it (mis)behaves, RECORD a file that gets one JSON
line for every request. PKCE, redirect, resource, code and refresh token are checked as a strict server does: each code and
each refresh token is good once. It ends with its stdin.
"""

import base64
import hashlib
import json
import os
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

HABITS = json.loads(sys.argv[1])
RECORD = sys.argv[2]
LOCK = threading.Lock()
CLIENTS, CODES, TOKENS, REFRESH = {}, {}, {}, {}
# Tokens issued before this one no longer count.
ENDED = set()


def habit(name, usual=None):
    return HABITS.get(name, usual)


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    @property
    def base(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def note(self, what, **more):
        with LOCK, open(RECORD, "a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, **more}) + "\n")

    def say(self, status, value=None, headers=()):
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers]:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/.well-known/oauth-protected-resource/mcp":
            self.note("resource")
            said = {"resource": habit("resource", f"{self.base}/mcp"), "authorization_servers": [f"{self.base}/as"]}
            self.say(200, said | {"scopes_supported": ["notes:read"]})
        elif url.path == "/.well-known/oauth-authorization-server/as":
            self.note("metadata")
            said = {
                "issuer": habit("issuer", f"{self.base}/as"),
                "authorization_endpoint": habit("authorization_endpoint", f"{self.base}/authorize"),
                "token_endpoint": f"{self.base}/token",
                "scopes_supported": ["notes:read", "notes:write", "offline_access"],
                "token_endpoint_auth_methods_supported": [habit("auth", "none")],
                "authorization_response_iss_parameter_supported": habit("names_itself", True),
            }
            if habit("registration", True):
                said["registration_endpoint"] = f"{self.base}/register"
            if habit("pkce", True):
                said["code_challenge_methods_supported"] = ["S256"]
            self.say(200, said)
        elif url.path == "/authorize":
            self.authorize({key: values[0] for key, values in parse_qs(url.query).items()})
        else:
            self.say(404)

    def authorize(self, asked):
        self.note("authorize", **{key: asked.get(key) for key in ("client_id", "scope", "resource", "redirect_uri")})
        client = CLIENTS.get(asked.get("client_id"))
        known = client is not None and asked.get("redirect_uri") in client["redirect_uris"]
        if not known or asked.get("code_challenge_method") != "S256" or asked.get("resource") != f"{self.base}/mcp":
            return self.say(400, {"error": "invalid_request"})
        code = secrets.token_urlsafe(16)
        CODES[code] = asked
        answer = {"state": asked["state"], "code": code, "iss": f"{self.base}/as"}
        answer |= habit("answer", {})
        answer = {key: value for key, value in answer.items() if value is not None}
        self.say(302, None, [("Location", f"{asked['redirect_uri']}?{urlencode(answer)}")])

    def do_POST(self):
        body = self.body()
        {"/register": self.register, "/token": self.token, "/mcp": self.mcp}.get(self.path, lambda _: self.say(404))(body)

    def register(self, body):
        asked = json.loads(body)
        self.note("register", **{key: asked.get(key) for key in ("application_type", "grant_types", "redirect_uris")})
        name = f"client-{len(CLIENTS) + 1}"
        CLIENTS[name] = asked
        self.say(201, {"client_id": name} | asked)

    def token(self, body):
        asked = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        self.note("token", grant_type=asked.get("grant_type"), authorization=bool(self.headers.get("Authorization")))
        if asked.get("resource") != f"{self.base}/mcp":
            return self.say(400, {"error": "invalid_target"})
        if asked.get("grant_type") == "authorization_code":
            was = CODES.pop(asked.get("code"), None)
            proof = base64.urlsafe_b64encode(hashlib.sha256(asked.get("code_verifier", "").encode()).digest())
            if was is None or proof.rstrip(b"=").decode() != was["code_challenge"] or asked.get("redirect_uri") != was["redirect_uri"]:
                return self.say(400, {"error": "invalid_grant"})
            scope = was.get("scope", "")
        elif asked.get("grant_type") == "client_credentials":
            shown = base64.b64decode((self.headers.get("Authorization") or "").removeprefix("Basic ")).decode()
            if shown != habit("machine"):
                return self.say(401, {"error": "invalid_client", "error_description": "who are you"})
            scope = asked.get("scope", "")
        else:
            scope = REFRESH.pop(asked.get("refresh_token"), None)
            if scope is None:
                return self.say(400, {"error": "invalid_grant", "error_description": "used or unknown"})
        access, again = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        TOKENS[access] = scope
        REFRESH[again] = scope
        given = {"access_token": access, "token_type": habit("token_type", "Bearer"), "scope": scope, "expires_in": habit("expires_in", 3600)}
        self.say(200, given | ({"refresh_token": again} if habit("refresh", True) else {}))

    def mcp(self, body):
        asked = json.loads(body)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        scope = None if token in ENDED else TOKENS.get(token)
        self.note("mcp", method=asked.get("method"), tool=asked.get("params", {}).get("name"), let_in=scope is not None)
        metadata = f'resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
        if scope is None:
            return self.say(401, {"error": "invalid_token"}, [("WWW-Authenticate", f"Bearer {metadata}")])
        if asked.get("id") is None:
            return self.say(202)
        result, error = self.answer(asked, scope)
        if error == "scope":
            said = f'Bearer error="insufficient_scope", scope="notes:write", {metadata}'
            return self.say(403, {"error": "insufficient_scope"}, [("WWW-Authenticate", said)])
        reply = {"jsonrpc": "2.0", "id": asked["id"]}
        self.say(200, reply | ({"error": error} if error else {"result": result}))
        # The token ends after so many answers, without a word, as one that was revoked does.
        if habit("ends_after") is not None and asked.get("method") == "tools/list":
            ENDED.add(token)

    def answer(self, asked, scope):
        match asked["method"]:
            case "initialize":
                said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
                return said | {"serverInfo": {"name": "guarded", "version": "1"}}, None
            case "tools/list":
                schema = {"type": "object", "properties": {}}
                read = {"name": "read_note", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
                return {"tools": [read, {"name": "find_note", "inputSchema": schema, "annotations": {"readOnlyHint": True}}]}, None
            case "tools/call":
                if asked["params"]["name"] == "find_note" and "notes:write" not in scope:
                    return None, "scope"
                return {"content": [{"type": "text", "text": "a note"}]}, None
            case other:
                return None, {"code": -32601, "message": f"no {other}"}


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


main()
