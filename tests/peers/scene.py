"""Starts what the peers need and ends it again: the fixture server, and the gateway in front of something.

Everything listens on loopback and dies with the test that started it. Knows nothing of what is tested.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache/peers"
NODE = str(CACHE / "bin/node")
PYTHON = str(CACHE / "python/bin/python")
NPM = CACHE / "npm/node_modules/@modelcontextprotocol"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
COUNTERSIGN = os.environ.get("COUNTERSIGN_BIN", str(TARGET / "countersign"))
FIXTURE = os.environ.get("FIXTURE_BIN", str(TARGET / "examples/fixture-server"))


class Failed(Exception):
    """Something did not start or did not answer; the text is for the person who reads the test's output."""


def end(process: subprocess.Popen) -> None:
    """Asks a process group to end, and ends it."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            return


@contextlib.contextmanager
def fixture(era: str = "dual") -> Iterator[str]:
    """The fixture server over HTTP; gives its URL."""
    command = [FIXTURE, "--port", "0", "--until-eof", "--era", era]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise Failed(f"{FIXTURE} did not start")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            end(process)


def upstream(target: str | list[str], **more: object) -> dict:
    """How the configuration names a URL or a command."""
    where = {"url": target} if isinstance(target, str) else {"command": target[0], "args": target[1:]}
    return where | more


def configuration(folder: Path, peer: dict) -> Path:
    """A gateway that lets everything pass: one upstream, its own names, every question, no second step."""
    # A JSON string is a TOML string, and so is a list of them; a table is not.
    inline = lambda table: "{ " + ", ".join(f"{key} = {value(item)}" for key, item in table.items()) + " }"
    value = lambda item: inline(item) if isinstance(item, dict) else json.dumps(item)
    text = f"""
[gateway]
mode = "execute"
surface = "direct"
agent_auth = "loopback-open"  # the suites' clients send no credential, and nothing asks their host
store = {json.dumps("sqlite:" + str(folder / "ledger.db"))}

[upstreams.peer]
prefix = false
elicitation = "url"
sampling = "on"
questions = "6000/min"
{chr(10).join(f"{key} = {value(item)}" for key, item in peer.items())}

[[rules]]
match = "*"
confirm = "none"
"""
    file = folder / "countersign.toml"
    file.write_text(text)
    return file


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="countersign-peers-") as path:
        yield Path(path)


def environment(folder: Path) -> dict[str, str]:
    """The gateway's home is the scene's, so that it cannot find anybody's own configuration."""
    return os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}


def wait_for_upstream(url: str) -> None:
    """Lists are answered at once, with what is there; a comparison begins when everything is. A call waits for its server, even
    one of a tool that nobody has."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "countersign-peer", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "nobody",
    }
    params = {"name": "nobody", "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60).read()


def remember(configured: Path, home: Path) -> None:
    """Has the gateway list its upstream once, as `init` does: clients that list once then see every tool."""
    command = [COUNTERSIGN, "upstreams", "test", "peer", "--config", str(configured)]
    subprocess.run(command, check=False, capture_output=True, cwd=home, env=environment(home), timeout=60)


@contextlib.contextmanager
def gateway(peer: dict, log: Path | None = None) -> Iterator[str]:
    """The gateway over HTTP in front of one upstream; gives the URL of its direct surface."""
    with folder() as home:
        command = [COUNTERSIGN, "serve", "--http", "127.0.0.1:0", "--config", str(configuration(home, peer))]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen(
            command, **pipes, text=True, cwd=home, env=environment(home), start_new_session=True
        ) as process:
            try:
                said = []
                url = None
                for line in process.stderr:
                    said.append(line)
                    if "listening on " in line:
                        url = line.split("listening on ", 1)[1].split()[0]
                        break
                if url is None:
                    raise Failed(f"the gateway did not start:\n{''.join(said)}")
                # A pipe nobody reads fills up, and then the gateway waits for us.
                keep = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
                keep.start()
                wait_for_upstream(url)
                yield url
            finally:
                end(process)
                if log is not None:
                    log.write_text("".join(said))


@contextlib.contextmanager
def gateway_command(peer: dict, is_known: bool = True) -> Iterator[list[str]]:
    """The command that serves one upstream over stdio; the gateway has seen it before, or not."""
    with folder() as home:
        configured = configuration(home, peer)
        if is_known:
            remember(configured, home)
        # Not `--config`: the Inspector takes a flag of that name for its own, wherever it stands.
        yield ["env", f"COUNTERSIGN_CONFIG={configured}", f"XDG_CONFIG_HOME={home}", COUNTERSIGN, "serve", "--stdio"]


@contextlib.contextmanager
def governed_command(peer: dict) -> Iterator[list[str]]:
    """The command that serves one upstream over stdio under its prefix, on the direct surface, with the default rules."""
    with folder() as home:
        lines = "\n".join(f"{key} = {json.dumps(item)}" for key, item in peer.items())
        configured = home / "countersign.toml"
        store = json.dumps("sqlite:" + str(home / "ledger.db"))
        configured.write_text(f'[gateway]\nsurface = "direct"\nstore = {store}\n\n[upstreams.peer]\n{lines}\n')
        remember(configured, home)
        yield ["env", f"COUNTERSIGN_CONFIG={configured}", f"XDG_CONFIG_HOME={home}", COUNTERSIGN, "serve", "--stdio"]
