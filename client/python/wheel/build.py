#!/usr/bin/python3
"""Makes the wheel: the package, and the programs and the library that `make wheel` has linked for it.

    client/python/wheel/build.py PROGRAMS VERSION
    client/python/wheel/build.py --pkg-info VERSION        prints the metadata of the sdist

PROGRAMS is the directory of dsaiod, dsaioctl and libdsaio-client.so.0; the wheel is made beside it.  Its name
says which hosts can use it: the processor, and the oldest glibc whose symbols the programs need.

For pip, this file is the build backend that pyproject.toml names: its last functions run `make`.

The same sources, programs and Python make the same bytes: files have the time of SOURCE_DATE_EPOCH, or of 1980.
"""

from __future__ import annotations

import base64
import csv
import glob
import hashlib
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PACKAGE = os.path.join(ROOT, "client", "python")

LIBRARY = "libdsaio-client.so.0"
PROGRAMS = ("dsaiod", "dsaioctl")

# RHEL 9 and Ubuntu 22.04 have it, or a newer one.
GLIBC_NEWEST = (2, 34)
# Every host with that glibc has these; all else must be inside the files.
HOST_LIBRARIES = re.compile(r"lib[cm]\.so\.6|ld-linux-[\w-]+\.so\.\d")
BYTES_MAX = 3_000_000

# Debian's packages that are linked into the programs, and their licences (SPDX).
PARTS = {
    "libaio": ("libaio-dev", "LGPL-2.1-or-later", "dsaiod"),
    "libevent": ("libevent-dev", "BSD-3-Clause AND BSD-2-Clause AND ISC", "dsaiod and dsaioctl"),
    "protobuf-c": ("libprotobuf-c-dev", "BSD-2-Clause", "dsaiod, dsaioctl and " + LIBRARY),
    "json-c": ("libjson-c-dev", "MIT", "dsaioctl"),
    "ncurses": ("libncurses-dev", "X11-distribute-modifications-variant", "dsaioctl"),
}

METADATA = """\
Metadata-Version: 2.1
Name: dsaio
Version: {version}
Summary: Tensors to and from NVMe storage through dsaiod: DeepNVMe's interface, and one queue for all programs
License: {licences}
Keywords: NVMe,DeepNVMe,DeepSpeed,PyTorch,libaio
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Typing :: Typed
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{description}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: dsaiod {version}
Root-Is-Purelib: false
Tag: {tag}
"""

ENTRY_POINTS = """\
[console_scripts]
dsaioctl = dsaio._programs:dsaioctl
dsaiod = dsaio._programs:dsaiod

[vllm.general_plugins]
dsaio = dsaio.vllm:register
"""

NOTICE = """\
dsaio {version} is licensed under the Apache License 2.0 (LICENSE).  Its programs contain these libraries, linked
from the archives of Debian's packages without a change.  The folders have their licences.

{parts}
libaio is under the GNU Lesser General Public License.  dsaiod's sources, with `make wheel`, link the programs again
with any other version of it.
"""


class Refused(Exception):
    """The wheel cannot be made; the text says why."""


def read(path: str) -> bytes:
    with open(path, "rb") as f:
        return f.read()


def run(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout.decode()


# ---- the programs ----

Version = tuple[int, ...]


def glibc_version(path: str) -> Version:
    """The newest version of glibc whose symbols a file needs.  Refuses a file that hosts may be unable to load."""
    text = run("objdump", "-p", "-T", path)
    name = os.path.basename(path)
    for library in re.findall(r"^ +NEEDED +(\S+)$", text, re.M):
        if not HOST_LIBRARIES.fullmatch(library):
            raise Refused(f"{name} needs {library}, which hosts may not have: link its archive (.a)")
    if re.search(r"^ +(RPATH|RUNPATH) ", text, re.M):
        raise Refused(f"{name} has a RUNPATH of this machine: link it without -rpath")
    needed = set(re.findall(r"^ +0x[0-9a-f]+ 0x[0-9a-f]+ \d+ (\S+)$", text, re.M))
    newest: Version = (0,)
    for version in needed:
        number = re.fullmatch(r"GLIBC_([\d.]+)", version)
        parts = tuple(map(int, number[1].split("."))) if number else None
        if parts is None or parts > GLIBC_NEWEST:
            symbols = re.findall(rf" \(?{re.escape(version)}\)? +(\S+)$", text, re.M)
            raise Refused(
                f"{name} needs {version} ({', '.join(symbols) or 'no symbol'}), and hosts may have glibc "
                f"{'.'.join(map(str, GLIBC_NEWEST))}: build on a host with an older glibc, such as Debian 12"
            )
        newest = max(newest, parts)
    # ADDRESS FLAGS SECTION SIZE [VERSION] NAME.  The seven flags have blanks; a weak symbol may be missing.
    for flags, section, rest in re.findall(r"^[0-9a-f]{16} (.{7}) (\S+)\t[0-9a-f]{16} +(.*)$", text, re.M):
        symbol = rest.split()[-1]
        if section == "*UND*" and "w" not in flags and "GLIBC_" not in rest:
            raise Refused(f"{name} needs {symbol}, which no library has")
        if section not in ("*UND*", "*ABS*") and name == LIBRARY and not symbol.startswith("dsaio_"):
            raise Refused(f"{name} exports {symbol}: another library of the same program may have that name")
    return newest


def tag(programs: str) -> str:
    glibc = max(glibc_version(os.path.join(programs, name)) for name in (*PROGRAMS, LIBRARY))
    return f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{os.uname().machine}"


# ---- licences ----


def licences(version: str) -> dict[str, bytes]:
    """The files of the folder licenses/."""
    files = {"LICENSE": read(os.path.join(ROOT, "LICENSE"))}
    lines = []
    for part, (package, licence, users) in PARTS.items():
        path = f"/usr/share/doc/{package}/copyright"
        try:
            text = read(path)
            source, at = run("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", package).split()
            files[f"{part}/copyright"] = text
            # Debian's file only refers to the text of this one.
            if licence.startswith("LGPL-2.1"):
                files[f"{part}/LGPL-2.1"] = read("/usr/share/common-licenses/LGPL-2.1")
        except (OSError, subprocess.CalledProcessError) as e:
            why = f"the licence of {part} is not there: {e}: the wheel is built on Debian (make deps)"
            raise Refused(why) from None
        lines.append(f"{part} ({licence}), in {users}: Debian's {source} {at},\n"
                     f"    https://sources.debian.org/src/{source}/{at}/\n")
    files["NOTICE"] = NOTICE.format(version=version, parts="".join(lines)).encode()
    return files


# ---- the wheel ----


def package_files() -> dict[str, bytes]:
    """The package, and the files beside it that Python reads when it starts."""
    files = {}
    for folder, folders, names in os.walk(os.path.join(PACKAGE, "dsaio")):
        folders[:] = [f for f in folders if f != "__pycache__"]
        for name in names:
            if name.endswith(".py") or name == "py.typed":
                path = os.path.join(folder, name)
                files[os.path.relpath(path, PACKAGE)] = read(path)
    for path in glob.glob(os.path.join(PACKAGE, "*.pth")):
        files[os.path.basename(path)] = read(path)
    return files


def metadata(version: str, licence: str) -> bytes:
    description = read(os.path.join(PACKAGE, "README.md")).decode()
    return METADATA.format(version=version, licences=licence, description=description).encode()


def wheel_files(programs: str, version: str, wheel_tag: str) -> dict[str, bytes]:
    files = package_files()
    if f'__version__ = "{version}"'.encode() not in files["dsaio/__init__.py"].splitlines():
        raise Refused(f"dsaio.h has version {version}, and the package's __version__ is another: make them the same")
    for name in (*PROGRAMS, LIBRARY):
        files["dsaio/" + name] = read(os.path.join(programs, name))
    for path in glob.glob(os.path.join(ROOT, "man", "*.[1-8]")):
        name = os.path.basename(path)
        files[f"dsaio-{version}.data/data/share/man/man{name[-1]}/{name}"] = read(path)
    info = f"dsaio-{version}.dist-info/"
    for name, text in licences(version).items():
        files[info + "licenses/" + name] = text
    parts = " AND ".join(p[1] for p in PARTS.values()).split(" AND ")
    files[info + "METADATA"] = metadata(version, " AND ".join(sorted({"Apache-2.0", *parts})))
    files[info + "WHEEL"] = WHEEL.format(version=version, tag=wheel_tag).encode()
    files[info + "entry_points.txt"] = ENTRY_POINTS.encode()
    return files


def record(files: dict[str, bytes], own_name: str) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for name in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        rows.writerow((name, "sha256=" + digest, len(files[name])))
    rows.writerow((own_name, "", ""))
    return text.getvalue().encode()


def write(path: str, files: dict[str, bytes]) -> None:
    # A zip file has no time before 1980.
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH") or 0), 315532800))[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # The folder .dist-info stands last, so that a reader finds it at once.
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: external_attr has the mode
            mode = 0o755 if os.path.basename(name) in PROGRAMS else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, files[name])


def main() -> None:
    programs, version = sys.argv[1:]
    if programs == "--pkg-info":
        sys.stdout.buffer.write(metadata(version, "Apache-2.0"))
        return
    wheel_tag = tag(programs)
    files = wheel_files(programs, version, wheel_tag)
    own_name = f"dsaio-{version}.dist-info/RECORD"
    files[own_name] = record(files, own_name)
    path = os.path.join(os.path.dirname(os.path.abspath(programs)), f"dsaio-{version}-{wheel_tag}.whl")
    write(path + ".new", files)
    n_bytes = os.path.getsize(path + ".new")
    if n_bytes > BYTES_MAX:
        os.unlink(path + ".new")
        raise Refused(f"it has {n_bytes} bytes, and {BYTES_MAX} are its limit: is a program not stripped?")
    os.rename(path + ".new", path)
    print(f"{os.path.relpath(path)}: {n_bytes} bytes")


# ---- the build backend: settings are variables of make, as in pip wheel . -C CC=clang ----

Settings = dict[str, str]


def make(target: str, pattern: str, directory: str, settings: Settings | None) -> str:
    variables = {"BUILD": "build", **(settings or {})}
    arguments = [f"{name}={value}" for name, value in variables.items()]
    subprocess.run(["make", "-C", ROOT, f"-j{os.cpu_count()}", target, *arguments], check=True)
    (path,) = glob.glob(os.path.join(ROOT, variables["BUILD"], pattern))
    return os.path.basename(shutil.copy(path, directory))


def build_wheel(directory: str, settings: Settings | None = None, metadata_directory: str | None = None) -> str:
    return make("wheel", "dsaio-*.whl", directory, settings)


def build_sdist(directory: str, settings: Settings | None = None) -> str:
    return make("sdist", "dsaio-*.tar.gz", directory, settings)


if __name__ == "__main__":
    try:
        main()
    except Refused as e:
        sys.exit(f"wheel: {e}")
