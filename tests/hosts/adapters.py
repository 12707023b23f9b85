"""LangChain's MCP adapters, as they are published: they open a session for each call.

A confirm token then comes back in another session than the one it was given in. With a credential made by `token create --any-session`
it fits; with any other it does not, and neither does one credential's token for another.
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import threading

from programs import Failed, Scene, notes_server

CONFIG = """[gateway]
mode = "execute"

[upstreams.notes]
command = "{command}"
args = [{args}]
"""


@contextlib.contextmanager
def gateway(scene):
    """The gateway over HTTP; gives the address of its router surface."""
    words = [scene.countersign, "serve", "--http", "127.0.0.1:0", "--config", str(scene.config)]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=scene.project,
        env=scene.env, start_new_session=True,
    ) as process:
        # A gateway that never says where it listens must not hang the test.
        late = threading.Timer(30, lambda: os.killpg(process.pid, signal.SIGKILL))
        late.start()
        try:
            said = next((line for line in process.stderr if "listening on " in line), None)
            late.cancel()
            if said is None:
                raise Failed("the gateway did not start")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield said.split("listening on ", 1)[1].split()[0]
        finally:
            late.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def credential(scene, name, *more):
    return scene.data("token", "create", "--role", "agent", "--name", name, *more)["token"]


async def add(url, secret, text, **more):
    """One call, in a session of its own; what the agent reads of the answer, an error's text included."""
    from langchain_mcp_adapters.client import MultiServerMCPClient

    headers = {"Authorization": f"Bearer {secret}"}
    client = MultiServerMCPClient({"countersign": {"transport": "streamable_http", "url": url, "headers": headers}})
    tools = {tool.name: tool for tool in await client.get_tools()}
    arguments = {"name": "notes:add_note", "args": {"text": text}, "intent": {"operation_type": "write"}, **more}
    try:
        return str(await tools["call_tool_write"].ainvoke(arguments))
    except Exception as error:  # the adapters raise what a tool refuses
        return str(error)


async def confirmed(scene, url, name, secret, other=None):
    """Hold, approval by a person, and the token in another session, that of another credential where one is given."""
    held = await add(url, secret, name, wait_seconds=0)
    plan, token = re.search(r"pln_\w{26}", held), re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", held)
    if not plan or not token:
        raise Failed(f"not held: {held}")
    approved = scene.ours("approve", plan.group(), "--yes")
    if approved.returncode != 0:
        raise Failed(f"approve: {approved.stdout}{approved.stderr}")
    phase_two = {"confirm_token": token.group(), "yes": True, "wait_seconds": 0}
    return [await add(url, other or secret, name, **phase_two) for _ in range(2)]


def one(countersign, folder, name, _program):
    scene = Scene(countersign, folder, name)
    notes = scene.folder / "notes.txt"
    notes.write_text("first\n")
    command, *args = notes_server(scene)
    scene.put(scene.config, CONFIG.format(command=command, args=", ".join(f'"{arg}"' for arg in args)))
    anywhere, twin = credential(scene, "chain", "--any-session"), credential(scene, "twin", "--any-session")
    plain = credential(scene, "plain")
    with gateway(scene) as url:
        async def play():
            return [
                await confirmed(scene, url, "any session", anywhere),
                await confirmed(scene, url, "own session", plain),
                await confirmed(scene, url, "foreign", anywhere, twin),
            ]
        (ran, again), (refused, _), (foreign, _) = asyncio.run(asyncio.wait_for(play(), 90))
    for what, said, part in (
        ("the token in another session", ran, "any session"),
        ("the same token again", again, "E_CONFIRM_TOKEN_USED"),
        ("without --any-session", refused, "E_CONFIRM_TOKEN_MISMATCH"),
        ("another credential's token", foreign, "E_CONFIRM_TOKEN_MISMATCH"),
    ):
        if part not in said:
            raise Failed(f"{what}: {said}")
    if notes.read_text() != "first\nany session\n":
        raise Failed(f"the upstream was called otherwise: {notes.read_text()!r}")
    return "a token fits the next session with --any-session, once; without it, or with another credential, it is refused"
