"""A Debian package, made with dpkg-deb. It brings the user unit, completions and manual pages to where Debian has them."""

import gzip
import os
import pathlib
import subprocess
import tempfile

from formats import File, Tree
from platforms import Platform, glibc

COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/countersign",
    "zsh": "usr/share/zsh/vendor-completions/_countersign",
    "fish": "usr/share/fish/vendor_completions.d/countersign.fish",
}


def layout(tree: Tree) -> Tree:
    """The files of the release where Debian wants them."""
    files = {"usr/bin/countersign": tree["bin/countersign"], "usr/share/doc/countersign/copyright": tree["LICENSE"]}
    for shell, path in COMPLETIONS.items():
        files[path] = tree[f"completions/countersign.{shell}"]
    for name, page in tree.items():
        if name.startswith("man/"):
            files[f"usr/share/{name}.gz"] = File(gzip.compress(page.content, mtime=0))
    unit = tree["systemd/countersign.service"].content.replace(b"%h/.local/bin/", b"/usr/bin/")
    files["usr/lib/systemd/user/countersign.service"] = File(unit)
    return files


def package(
    out: pathlib.Path, folder: pathlib.Path, version: str, platform: Platform, binary: pathlib.Path, tree: Tree, level: int
) -> None:
    values = {"VERSION": version, "ARCHITECTURE": platform.debian or "", "GLIBC": glibc(binary)}
    control = (folder / "control").read_text()
    for name, value in values.items():
        control = control.replace(name, value)
    with tempfile.TemporaryDirectory() as room:
        for name, file in {**layout(tree), "DEBIAN/control": File(control.encode())}.items():
            path = pathlib.Path(room, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
            path.chmod(file.mode)
        for path in [room, *(str(below) for below in pathlib.Path(room).rglob("*") if below.is_dir())]:
            os.chmod(path, 0o755)
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{level}", "--build", room]
        target = out / f"countersign_{version}_{platform.debian}.deb"
        # The same bytes whenever it is made.
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
        subprocess.run([*command, str(target)], check=True, stdout=subprocess.DEVNULL, env=environment)
