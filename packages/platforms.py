"""The platforms a release is built for, each by the names that others have for it."""

import pathlib
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    # As `countersign version` prints it, and as archives are named.
    name: str
    node: str
    wheel: str
    debian: str | None = None

    @property
    def is_windows(self) -> bool:
        return self.node.startswith("win32")

    @property
    def program(self) -> str:
        return "countersign.exe" if self.is_windows else "countersign"

    def wheel_tag(self, binary: pathlib.Path) -> str:
        """The platform tag of a wheel with this binary; on Linux it names the oldest C library that has what the binary uses."""
        if "GLIBC" not in self.wheel:
            return self.wheel
        return self.wheel.replace("GLIBC", glibc(binary).replace(".", "_"))


def glibc(binary: pathlib.Path) -> str:
    found = re.findall(rb"GLIBC_(\d+)\.(\d+)", binary.read_bytes())
    return "%d.%d" % max((int(major), int(minor)) for major, minor in found)


PLATFORMS = {
    platform.name: platform
    for platform in [
        Platform("x86_64-linux", "linux-x64", "manylinux_GLIBC_x86_64", "amd64"),
        Platform("aarch64-linux", "linux-arm64", "manylinux_GLIBC_aarch64", "arm64"),
        Platform("x86_64-macos", "darwin-x64", "macosx_11_0_x86_64"),
        Platform("aarch64-macos", "darwin-arm64", "macosx_11_0_arm64"),
        Platform("x86_64-windows", "win32-x64", "win_amd64"),
    ]
}
