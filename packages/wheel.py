"""Makes a wheel that carries one binary: `wheel.py BINARY VERSION GLIBC README OUT`. Needs nothing but Python itself."""

import base64
import hashlib
import pathlib
import sys
import zipfile

binary, version, glibc, readme, out = sys.argv[1:]
tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"
info = f"countersign-{version}.dist-info"
files = {
    f"countersign-{version}.data/scripts/countersign": (pathlib.Path(binary).read_bytes(), 0o755),
    f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: countersign\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
    f"{info}/METADATA": (
        (
            f"Metadata-Version: 2.4\nName: countersign\nVersion: {version}\nLicense-Expression: Apache-2.0\n"
            "Summary: Agents draft; a person countersigns: one binary between agent hosts and everything their agents can change\n"
            "Description-Content-Type: text/markdown\n\n<!-- mcp-name: io.github.countersign/countersign -->\n\n"
        ).encode()
        + pathlib.Path(readme).read_bytes(),
        0o644,
    ),
}
record = f"{info}/RECORD"
lines = []
path = pathlib.Path(out) / f"countersign-{version}-{tag}.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
    for name, (content, mode) in [*files.items(), (record, (None, 0o644))]:
        if content is None:
            content = ("\n".join([*lines, f"{record},,"]) + "\n").encode()
        else:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}")
        # The same bytes from the same binary, whenever it is made.
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        wheel.writestr(entry, content)
print(path)
