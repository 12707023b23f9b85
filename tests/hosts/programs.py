"""The hosts: where each keeps its servers, and how it is started against a model on loopback, headless or in a terminal.

A host gets one server and is taken over by `init`. None has an account.
"""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


class Failed(Exception):
    pass


class Scene:
    """A home of its own, with one host in it."""

    def __init__(self, countersign, folder, name, host=None):
        self.countersign, self.name, self.host = countersign, name, host or name
        self.folder = pathlib.Path(folder) / name
        self.home, self.project = self.folder / "home", self.folder / "project"
        self.codex = self.folder / "codex"
        for one in (self.home, self.project, self.codex):
            one.mkdir(parents=True, exist_ok=True)
        self.config = self.home / ".config/countersign/countersign.toml"
        # What the machine's own tools need, and nothing that tells a host who we are.
        self.env = {
            "HOME": str(self.home), "CODEX_HOME": str(self.codex), "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
            "USER": "ada", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
        }

    def run(self, *words, timeout=300, **more):
        env = dict(self.env, **more.pop("env", {}))
        return subprocess.run(
            [str(word) for word in words], cwd=self.project, env=env, text=True, capture_output=True, timeout=timeout,
            stdin=subprocess.DEVNULL, **more,
        )

    def ours(self, *words):
        return self.run(self.countersign, *words, "--config", self.config)

    def data(self, *words):
        ran = self.ours(*words, "--json")
        try:
            return json.loads(ran.stdout)["data"]
        except (ValueError, KeyError):
            raise Failed(f"{words}: {ran.stdout}{ran.stderr}") from None

    def rows(self):
        return self.data("activity", "list")["activities"]

    def put(self, path, value):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2) if not isinstance(value, str) else value)

    def take_over(self, name, server, confirm, more=""):
        """Gives the host its server, has `init` take it over, and replaces what it says about confirming."""
        HOSTS[self.host].give(self, name, server)
        words = ["init", "--permissions", "--mode", "execute", "--yes", "--host", self.host]
        made = self.run(self.countersign, *words)
        if made.returncode != 0:
            raise Failed(f"init: {made.stdout}{made.stderr}")
        text = self.config.read_text()
        whole = text.split("[confirm]")[0] + confirm + "\n[upstreams" + text.split("[upstreams", 1)[1]
        self.config.write_text(whole + more)

    def take_back(self):
        """Doctor sees the host leading to us, and `init --undo` gives its server back."""
        checks = self.ours("doctor", "--no-start", "--json")
        if "leads to countersign" not in checks.stdout:
            raise Failed(f"doctor does not see it: {checks.stdout}{checks.stderr}")
        undone = self.run(self.countersign, "init", "--undo")
        if undone.returncode != 0:
            raise Failed(f"undo: {undone.stdout}{undone.stderr}")


def stdio(server):
    return {"command": server[0], "args": server[1:]}


class Claude:
    @staticmethod
    def give(scene, name, server):
        # What its first start asks for was answered: looks, the key, the folder.
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        scene.put(scene.home / ".claude.json", {
            "mcpServers": {name: dict(stdio(server), type="stdio")}, "hasCompletedOnboarding": True, "theme": "dark",
            "customApiKeyResponses": {"approved": ["none"], "rejected": []}, "projects": {str(scene.project): trusted},
        })

    @staticmethod
    def env(url):
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "MCP_TIMEOUT": "60000"}

    @classmethod
    def headless(cls, scene, program, url):
        return [program, "-p", "go", "--output-format", "json"], cls.env(url)

    @classmethod
    def interactive(cls, scene, program, url):
        return [program, "go"], cls.env(url)


class Codex:
    @staticmethod
    def give(scene, name, server):
        command, *args = server
        words = ", ".join(f'"{arg}"' for arg in args)
        trusted = f'[projects."{scene.project}"]\ntrust_level = "trusted"\n'
        server = f'[mcp_servers.{name}]\ncommand = "{command}"\nargs = [{words}]\n'
        scene.put(scene.codex / "config.toml", f"{trusted}\n{server}")

    @staticmethod
    def settings(url):
        provider = f'{{name="loopback", base_url="{url}/v1", wire_api="responses"}}'
        settings = ['model="scripted"', 'model_provider="loopback"', f"model_providers.loopback={provider}"]
        return [word for setting in settings for word in ("-c", setting)]

    @classmethod
    def headless(cls, scene, program, url):
        return [program, "exec", "--skip-git-repo-check", *cls.settings(url), "go"], {}

    @classmethod
    def interactive(cls, scene, program, url):
        return [program, *cls.settings(url), "-c", "check_for_update_on_startup=false", "go"], {}


class Gemini:
    @staticmethod
    def give(scene, name, server):
        scene.put(scene.home / ".gemini/settings.json", {
            "mcpServers": {name: stdio(server)},
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        })

    @staticmethod
    def env(url):
        return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    @classmethod
    def headless(cls, scene, program, url):
        return ["node", program, "-p", "go", "-m", "gemini-2.5-flash"], cls.env(url)

    @classmethod
    def interactive(cls, scene, program, url):
        return ["node", program, "-i", "go", "-m", "gemini-2.5-flash"], cls.env(url)


class Opencode:
    @staticmethod
    def path(scene):
        return scene.home / ".config/opencode/opencode.json"

    @classmethod
    def give(cls, scene, name, server):
        scene.put(cls.path(scene), {"mcp": {name: {"type": "local", "command": list(server), "enabled": True}}})

    @classmethod
    def point(cls, scene, url):
        whole = json.loads(cls.path(scene).read_text())
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "loopback", "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
            "models": {"scripted": {"name": "scripted", "tool_call": True}},
        }
        whole |= {"provider": {"loopback": provider}, "model": "loopback/scripted", "small_model": "loopback/scripted"}
        cls.path(scene).write_text(json.dumps(whole))

    @classmethod
    def headless(cls, scene, program, url):
        cls.point(scene, url)
        return [program, "run", "--model", "loopback/scripted", "go"], {}

    @classmethod
    def interactive(cls, scene, program, url):
        cls.point(scene, url)
        return [program, "--model", "loopback/scripted", "--prompt", "go"], {}


class Copilot:
    @staticmethod
    def give(scene, name, server):
        entry = dict(stdio(server), type="local", tools=["*"])
        scene.put(scene.home / ".copilot/mcp-config.json", {"mcpServers": {name: entry}})

    @staticmethod
    def env(url):
        return {
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_TYPE": "openai", "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_MODEL": "scripted", "COPILOT_OFFLINE": "true",
        }

    # It keeps no rules in a file: what it may call is said on its command line.
    @classmethod
    def headless(cls, scene, program, url):
        return [program, "-p", "go", "--allow-tool", "countersign", "--no-color"], cls.env(url)

    @classmethod
    def interactive(cls, scene, program, url):
        return [program, "-i", "go", "--allow-tool", "countersign"], cls.env(url)


HOSTS = {"claude-code": Claude, "codex": Codex, "gemini": Gemini, "opencode": Opencode, "copilot": Copilot}


def notes_server(scene):
    """A server with one tool that looks and one that changes a file."""
    return [sys.executable, str(HERE / "notes.py"), str(scene.folder / "notes.txt")]
