"""What wheels are compiled with: zig's C compiler, for a Linux that is older than this one, on any processor.

Zig has the declarations and the symbols of every glibc since 2.17 and of every processor beside its clang, so
that what it makes here asks for nothing newer than is said, and another processor needs nothing installed.
Zig itself is a wheel (``ziglang``), of one release: another one gives other bytes.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ZIG = "ziglang==0.17.1"
GLIBC = "2.17"
"""The oldest that programs find by its symbols: all is older that the modules and the library call."""

ARCHES = ("x86_64", "aarch64")
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
ELF = b"\x7fELF\x02\x01"
"""A 64-bit little-endian file of this format begins so."""
OWN_LIBRARY = b"compiler_rt."
"""Names of zig's own library begin so.  It comes into a file whole, with one function that no other has, and
then memcpy() and its like are zig's there, which know no newer instructions, and not the C library's."""

TYPES = {
    "_BOOL": "_Bool", "DOUBLE": "double", "FLOAT": "float", "FPOS_T": "fpos_t", "INT": "int", "LONG": "long",
    "LONG_DOUBLE": "long double", "LONG_LONG": "long long", "MAX_ALIGN_T": "max_align_t", "OFF_T": "off_t",
    "PID_T": "pid_t", "PTHREAD_KEY_T": "pthread_key_t", "PTHREAD_T": "pthread_t", "SHORT": "short",
    "SIZE_T": "size_t", "TIME_T": "time_t", "UINTPTR_T": "uintptr_t", "VOID_P": "void *",
    "WCHAR_T": "wchar_t",
}  # fmt: skip
"""C types by their names in pyconfig.h."""
OF_X86 = re.compile(r"^#define HAVE_GCC_ASM_FOR_X\d+ 1$", re.MULTILINE)
FACTS = ("pthread.h", "stddef.h", "stdint.h", "stdio.h", "sys/types.h", "time.h", "wchar.h")


@dataclass(frozen=True)
class Compiler:
    """Zig in the environment of the interpreter ``python``, which compiles for the processor ``arch``; what
    it keeps, and the headers of a Python for that processor, stand below ``folder``."""

    python: Path
    arch: str
    folder: Path

    def variables(self, include: Path, suffix: str) -> dict[str, str]:
        """The environment of a build against the Python whose headers are ``include`` and whose extensions'
        names end in ``suffix`` on this machine."""
        here = platform.machine()
        command = shlex.join([*self.command(), f"-I{self.headers(include)}"])
        words = {"CC": command, "LDSHARED": f"{command} -shared", **self._caches()}
        if self.arch != here:
            words["SETUPTOOLS_EXT_SUFFIX"] = suffix.replace(here, self.arch)
            words["_PYTHON_HOST_PLATFORM"] = f"linux-{self.arch}"
        return words

    def command(self) -> list[str]:
        """The compiler, and what it always is told."""
        (zig,) = self.python.parents[1].glob("lib/python3.*/site-packages/ziglang/zig")
        return [str(zig), "cc", "-target", f"{self.arch}-linux-gnu.{GLIBC}"]

    def headers(self, include: Path) -> Path:
        """Python's headers for this processor: this machine's, without what is said of x86 there where it is
        another one; the compiler confirms what they say of types.

        CalledProcessError where that is wrong.
        """
        made = self.folder / "include"
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(include, made)
        said = made / "pyconfig.h"
        text = configuration(include).read_text()
        said.write_text(text if self.arch == platform.machine() else OF_X86.sub("", text))
        check = self.folder / "check.c"
        check.write_text(confirmed(said.read_text()))
        subprocess.run([*self.command(), "-c", check, "-o", check.with_suffix(".o")], check=True,
                       env={**os.environ, **self._caches()})  # fmt: skip
        return made

    def _caches(self) -> dict[str, str]:
        kept = str(self.folder / "zig")
        return {"ZIG_GLOBAL_CACHE_DIR": kept, "ZIG_LOCAL_CACHE_DIR": kept}


def configuration(include: Path) -> Path:
    """The pyconfig.h that tells of this machine; Debian has one for each processor, and beside the other
    headers one that leads to them."""
    apart = include.parent / f"{platform.machine()}-linux-gnu" / include.name / "pyconfig.h"
    return apart if apart.exists() else include / "pyconfig.h"


def confirmed(said: str) -> str:
    """C that compiles only where types are as a pyconfig.h says.  SystemExit for a type that is unknown
    here."""
    lines = [f"#include <{name}>" for name in FACTS]
    for what, name, number in re.findall(r"^#define (SIZEOF|ALIGNOF)_(\w+) (\d+)$", said, re.MULTILINE):
        if name not in TYPES:
            raise SystemExit(f"pyconfig.h tells of {what}_{name}: which type that is stands nowhere here")
        measure = "sizeof" if what == "SIZEOF" else "_Alignof"
        lines.append(f'_Static_assert({measure}({TYPES[name]}) == {number}, "{what}_{name}");')
    return "\n".join([*lines, ""])


def complaint(name: str, data: bytes, arch: str) -> str:
    """What is wrong with a file of a wheel for ``arch``: it is for another processor, asks for a newer glibc,
    copies memory by other means than the C library's, or knows where it was built; nothing where it is none
    of a compiler's."""
    if not data.startswith(ELF):
        return ""
    machine = int.from_bytes(data[18:20], "little")
    if machine != ELF_MACHINES[arch]:
        return f"{name} is for processor {machine}"
    asked = max(map(_version, re.findall(rb"\0GLIBC_([0-9.]+)(?=\0)", data)), default=(0,))
    if asked > _version(GLIBC.encode()):
        return f"{name} asks for glibc {'.'.join(map(str, asked))}"
    if b"\0.debug_info\0" in data:
        return f"{name} has debugging information, with a path"
    return f"{name} has zig's own library in it" if OWN_LIBRARY in data else ""


def _version(text: bytes) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(b"."))
