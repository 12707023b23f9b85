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
                yield url
            finally:
                end(process)
                if log is not None:
                    log.write_text("".join(said))


@contextlib.contextmanager
def gateway_command(peer: dict) -> Iterator[list[str]]:
    """The command that serves one upstream over stdio."""
    with folder() as home:
        configured = configuration(home, peer)
        # Not `--config`: the Inspector takes a flag of that name for its own, wherever it stands.
        yield ["env", f"COUNTERSIGN_CONFIG={configured}", f"XDG_CONFIG_HOME={home}", COUNTERSIGN, "serve", "--stdio"]
