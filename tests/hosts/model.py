"""A scripted model on loopback in the dialects of five hosts: Anthropic messages, OpenAI responses and chat completions, Gemini.

Each request that offers our tools gets the next step of the script: a call of one of our tools, and at the end a word.
What the tools answered is kept, as the host passed it on to its model.
"""

import http.server
import json
import re
import threading
import time


class Script:
    """Steps `(tool, arguments)`; `wait` seconds before one; `TOKEN` in arguments is the last confirm token that was seen, `PLAN` the
    last plan. `anchor` is a tool of ours that shows how the host calls them all."""

    def __init__(self, steps, anchor="call_tool_read"):
        self.anchor = anchor
        self.steps, self.at, self.results, self.seen, self.offered = steps, 0, [], set(), set()
        self.lock = threading.Lock()
        self.log = []

    def saw(self, key, result):
        with self.lock:
            if key not in self.seen:
                self.seen.add(key)
                self.results.append(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))

    def last(self, pattern):
        found = re.findall(pattern, "\n".join(self.results))
        return found[-1] if found else "none"

    def fill(self, args):
        token = self.last(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
        text = json.dumps(args).replace('"TOKEN"', f'"{token}"')
        return json.loads(text.replace('"PLAN"', '"' + self.last(r"pln_[0-9A-Z]{26}") + '"'))

    def next(self, tools):
        ours = [tool for tool in tools if self.anchor in tool]
        with self.lock:
            self.offered |= set(tools)
            self.log.append((len(tools), bool(ours), self.at))
            if not ours or self.at >= len(self.steps):
                return None
            step = self.steps[self.at]
            self.at += 1
        time.sleep(step.get("wait", 0))
        return ours[0].replace(self.anchor, step["tool"]), self.fill(step["args"])


def events(pairs):
    return "".join(f"event: {name}\ndata: {json.dumps(dict(data, type=name))}\n\n" for name, data in pairs)


def handler(script):
    class Model(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, body, kind="application/json"):
            body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self):
            self.answer("")

        def do_GET(self):
            self.answer({"object": "list", "data": [{"id": "scripted", "object": "model", "name": "scripted"}]})

        def body(self):
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            whole = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole

        def do_POST(self):
            try:
                request = json.loads(self.body() or b"{}")
                if "ount_tokens" in self.path or "ountTokens" in self.path:
                    return self.answer({"input_tokens": 1, "totalTokens": 1})
                for part, speak in (
                    ("enerateContent", self.speak_gemini), ("chat/completions", self.speak_chat), ("/responses", self.speak_responses),
                    ("/messages", self.speak_messages),
                ):
                    if part in self.path:
                        return speak(request)
                self.answer({})
            except (BrokenPipeError, ConnectionResetError):
                pass

        def speak_messages(self, request):
            for message in request.get("messages", []):
                for part in message["content"] if isinstance(message.get("content"), list) else []:
                    if part.get("type") == "tool_result":
                        script.saw(part["tool_use_id"], part.get("content"))
            call = script.next([tool["name"] for tool in request.get("tools", [])])
            block = {"type": "text", "text": "done"}
            if call:
                block = {"type": "tool_use", "id": f"toolu_{time.time_ns()}", "name": call[0], "input": call[1]}
            message = {
                "id": f"msg_{time.time_ns()}", "type": "message", "role": "assistant", "model": request.get("model", "m"),
                "content": [], "stop_reason": None, "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
            stop = "tool_use" if call else "end_turn"
            if not request.get("stream"):
                return self.answer(dict(message, content=[block], stop_reason=stop))
            delta = {"type": "text_delta", "text": "done"}
            if call:
                delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
            start = dict(block, input={}) if call else {"type": "text", "text": ""}
            self.answer(events([
                ("message_start", {"message": message}),
                ("content_block_start", {"index": 0, "content_block": start}),
                ("content_block_delta", {"index": 0, "delta": delta}),
                ("content_block_stop", {"index": 0}),
                ("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}}),
                ("message_stop", {}),
            ]), "text/event-stream")

        def speak_responses(self, request):
            tools = []
            for tool in request.get("tools", []):
                if tool.get("type") == "namespace":
                    tools += [f"{tool['name']}/{inner.get('name', '')}" for inner in tool.get("tools", [])]
                elif tool.get("name"):
                    tools.append(tool["name"])
            for item in request.get("input", []) if isinstance(request.get("input"), list) else []:
                if item.get("type") == "function_call_output":
                    script.saw(item["call_id"], item.get("output"))
            call = script.next(tools)
            number = time.time_ns()
            item = {
                "type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}],
            }
            if call:
                item = {
                    "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call[0],
                    "arguments": json.dumps(call[1]), "status": "completed",
                }
                if "/" in call[0]:
                    item["namespace"], item["name"] = call[0].split("/", 1)
            usage = {
                "input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2,
            }
            response = {
                "id": f"resp_{number}", "object": "response", "created_at": int(time.time()), "status": "in_progress",
                "model": request.get("model", "m"), "output": [],
            }
            done = dict(response, status="completed", output=[item], usage=usage)
            if not request.get("stream"):
                return self.answer(done)
            self.answer(events([
                ("response.created", {"response": response}),
                ("response.output_item.added", {"output_index": 0, "item": item}),
                ("response.output_item.done", {"output_index": 0, "item": item}),
                ("response.completed", {"response": done}),
            ]), "text/event-stream")

        def speak_chat(self, request):
            for message in request.get("messages", []):
                if message.get("role") == "tool":
                    script.saw(message["tool_call_id"], message.get("content"))
            call = script.next([tool["function"]["name"] for tool in request.get("tools", []) if "function" in tool])
            message = {"role": "assistant", "content": None if call else "done"}
            if call:
                function = {"name": call[0], "arguments": json.dumps(call[1])}
                message["tool_calls"] = [
                    {"index": 0, "id": f"call_{time.time_ns()}", "type": "function", "function": function}
                ]
            whole = {
                "id": f"chatcmpl_{time.time_ns()}", "created": int(time.time()), "model": request.get("model", "m"),
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
            stop = "tool_calls" if call else "stop"
            if not request.get("stream"):
                choice = {"index": 0, "message": message, "finish_reason": stop}
                return self.answer(dict(whole, object="chat.completion", choices=[choice]))
            chunks = [
                dict(whole, object="chat.completion.chunk", choices=[{"index": 0, "delta": delta, "finish_reason": end}])
                for delta, end in ((message, None), ({}, stop))
            ]
            self.answer("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n", "text/event-stream")

        def speak_gemini(self, request):
            count = 0
            for content in request.get("contents", []):
                for part in content.get("parts", []):
                    if "functionResponse" in part:
                        count += 1
                        script.saw(count, part["functionResponse"].get("response"))
            tools = [one["name"] for tool in request.get("tools", []) for one in tool.get("functionDeclarations", [])]
            call = script.next(tools)
            part = {"functionCall": {"name": call[0], "args": call[1]}} if call else {"text": "done"}
            answer = {
                "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
                "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
                "modelVersion": "scripted",
            }
            if "stream" in self.path:
                return self.answer(f"data: {json.dumps(answer)}\n\n", "text/event-stream")
            self.answer(answer)

    return Model


def serve(script):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(script))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
