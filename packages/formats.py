"""Archives, npm packages and wheels, written with Python alone: the same bytes from the same binary, whenever and wherever."""

import base64
import gzip
import hashlib
import io
import json
import pathlib
import tarfile
import zipfile
from dataclasses import dataclass

from platforms import PLATFORMS, Platform

SUMMARY = "MCP gateway with human approval: agents draft, a person countersigns"
MCP_NAME = "io.github.countersign/countersign"


@dataclass(frozen=True)
class File:
    content: bytes
    mode: int = 0o644


Tree = dict[str, File]


def tarball(path: pathlib.Path, root: str, files: Tree, level: int) -> None:
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", level, raw, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, file in sorted(files.items()):
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mode = len(file.content), file.mode
            tar.addfile(entry, io.BytesIO(file.content))


def zip_file(path: pathlib.Path, files: list[tuple[str, File]], level: int) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, file in files:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.content)


def archive(out: pathlib.Path, root: str, platform: Platform, tree: Tree, level: int) -> None:
    if platform.is_windows:
        zip_file(out / f"{root}-{platform.name}.zip", [(f"{root}/{name}", file) for name, file in sorted(tree.items())], level)
    else:
        tarball(out / f"{root}-{platform.name}.tar.gz", root, tree, level)


def npm_packages(out: pathlib.Path, folder: pathlib.Path, version: str, platform: Platform, tree: Tree, level: int) -> None:
    """Two packages: the binary for this platform, and the launcher, which npm installs with the package of the reader's platform."""
    about = {"version": version, "description": SUMMARY, "license": "Apache-2.0"}

    def package(name: str, manifest: dict, files: Tree) -> None:
        text = json.dumps({"name": name, **about, **manifest}, indent=2) + "\n"
        files = {**files, "package.json": File(text.encode()), "LICENSE": tree["LICENSE"]}
        tarball(out / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz", "package", files, level)

    system, processor = platform.node.split("-")
    binary = {name: file for name, file in tree.items() if name.startswith("bin/")}
    package(f"@countersign/{platform.node}", {"os": [system], "cpu": [processor]}, binary)
    launcher = {
        "mcpName": MCP_NAME,
        "bin": {"countersign": "countersign.js"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {f"@countersign/{one.node}": version for one in PLATFORMS.values()},
    }
    script = File((folder / "countersign.js").read_bytes(), 0o755)
    package("countersign", launcher, {"countersign.js": script, "README.md": tree["README.md"]})


def wheel(out: pathlib.Path, version: str, platform: Platform, binary: pathlib.Path, tree: Tree, level: int) -> None:
    tag, info = f"py3-none-{platform.wheel_tag(binary)}", f"countersign-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: countersign\nVersion: {version}\nLicense-Expression: Apache-2.0\nSummary: {SUMMARY}\n"
        f"Description-Content-Type: text/markdown\n\n<!-- mcp-name: {MCP_NAME} -->\n\n"
    )
    files = [
        (f"countersign-{version}.data/scripts/{platform.program}", tree[f"bin/{platform.program}"]),
        (f"{info}/WHEEL", File(f"Wheel-Version: 1.0\nGenerator: countersign\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())),
        (f"{info}/METADATA", File(metadata.encode() + tree["README.md"].content)),
    ]

    def line(name: str, file: File) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.content).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(file.content)}\n"

    record = "".join(line(name, file) for name, file in files) + f"{info}/RECORD,,\n"
    zip_file(out / f"countersign-{version}-{tag}.whl", [*files, (f"{info}/RECORD", File(record.encode()))], level)
