#!/usr/bin/env python3
"""Completes a release whose files, of one platform or several, are in a folder: install script, formula, registry entry, checksums.

  packages/release.py FOLDER VERSION
"""

import hashlib
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
# A formula says which archive is for which machine in these blocks.
BREW = {"macos": "on_macos", "linux": "on_linux", "aarch64": "on_arm", "x86_64": "on_intel"}


def digest(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def formula(out: pathlib.Path, version: str) -> str:
    """The Homebrew formula, for the archives that are there."""
    blocks = []
    for path in sorted(out.glob(f"countersign-{version}-*.tar.gz")):
        processor, system = path.name.removesuffix(".tar.gz").removeprefix(f"countersign-{version}-").split("-")
        blocks += [
            f"  {BREW[system]} do",
            f"    {BREW[processor]} do",
            f'      url "#{{RELEASES}}/{path.name}"',
            f'      sha256 "{digest(path)}"',
            "    end",
            "  end",
        ]
    template = (HERE / "homebrew/countersign.rb").read_text()
    return template.replace("VERSION", version).replace("  # ARCHIVES\n", "\n".join(blocks) + "\n")


def complete(out: pathlib.Path, version: str) -> None:
    (out / "countersign.rb").write_text(formula(out, version))
    (out / "install.sh").write_bytes((HERE / "install.sh").read_bytes())
    (out / "server.json").write_text((HERE / "server.json").read_text().replace("VERSION", version))
    files = sorted(path for path in out.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    (out / "SHA256SUMS").write_text("".join(f"{digest(path)}  {path.name}\n" for path in files))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    complete(pathlib.Path(sys.argv[1]), sys.argv[2])
