"""What wheels are compiled with: headers of another processor, and what a wheel may hold."""

import importlib.util
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PATH = Path(__file__).parents[1] / "release" / "compiler.py"
SPEC = importlib.util.spec_from_file_location("wheel_compiler", PATH)
compiler = importlib.util.module_from_spec(SPEC)
sys.modules["wheel_compiler"] = compiler
SPEC.loader.exec_module(compiler)

HEADER = """#ifndef Py_PYCONFIG_H
#define ALIGNOF_LONG 8
#define HAVE_GCC_ASM_FOR_X64 1
#define HAVE_GCC_ASM_FOR_X87 1
#define SIZEOF_LONG {long}
#define SIZEOF_VOID_P 8
#endif
"""


def object_of(machine: int, *versions: str) -> bytes:
    names = b"\0".join([b"", b"libc.so.6", *(f"GLIBC_{each}".encode() for each in versions), b""])
    return compiler.ELF + bytes(12) + machine.to_bytes(2, "little") + bytes(44) + names


def test_what_is_in_a_wheel_is_for_its_processor_and_no_newer_glibc() -> None:
    for arch, machine in compiler.ELF_MACHINES.items():
        assert compiler.complaint("a.so", object_of(machine, "2.2.5", "2.17", "2.14"), arch) == ""
        assert "asks for glibc 2.33" in compiler.complaint("a.so", object_of(machine, "2.17", "2.33"), arch)
        assert compiler.complaint("a.so", object_of(machine), arch) == ""
    assert compiler.complaint("a.so", object_of(62, "2.17"), "aarch64") == "a.so is for processor 62"
    assert compiler.complaint("a.py", b"GLIBC_2.99\0compiler_rt.memcpy\0", "x86_64") == ""
    own = object_of(62, "2.17") + b"compiler_rt.memcpy.memcpyFast\0"
    assert compiler.complaint("a.so", own, "x86_64") == "a.so has zig's own library in it"
    told = object_of(62, "2.17") + b".symtab\0.debug_info\0.strtab\0"
    assert "debugging information" in compiler.complaint("a.so", told, "x86_64")


def test_a_header_that_tells_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(SystemExit, match="SIZEOF_QUARK"):
        compiler.confirmed("#define SIZEOF_QUARK 3\n")


def test_this_python_s_header_is_confirmed(tmp_path: Path) -> None:
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        pytest.skip("there are no headers of this Python")
    source = tmp_path / "check.c"
    said = compiler.configuration(include).read_text()
    for text, status in ((said, 0), (said + "#define SIZEOF_LONG 4\n", 1)):
        source.write_text(compiler.confirmed(text))
        done = subprocess.run(["gcc", "-c", source, "-o", tmp_path / "check.o"], capture_output=True)
        assert done.returncode == status, done.stderr


@pytest.mark.parametrize("place", ["kept", "a second place"])
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_headers_say_nothing_of_another_processor_and_are_confirmed_by_its_compiler(
    arch: str, place: str, tmp_path: Path
) -> None:
    tmp_path = tmp_path / place
    zig = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / "ziglang" / "zig"
    zig.parent.mkdir(parents=True)
    zig.write_text('#!/bin/sh\nwhile [ "$1" != -c ]; do echo "$1"; shift; done > "$(dirname "$0")/words"\n'
                   'exec gcc "$@"\n')  # fmt: skip
    zig.chmod(0o755)
    include = tmp_path / "include" / "python3.11"
    include.mkdir(parents=True)
    (include / "pyconfig.h").write_text(HEADER.format(long=8))
    made = compiler.Compiler(tmp_path / "env" / "bin" / "python", arch, tmp_path / "kept")
    words = made.variables(include, f".cpython-311-{platform.machine()}-linux-gnu.so")
    header = (tmp_path / "kept" / "include" / "pyconfig.h").read_text()
    assert ("X64" in header) == ("X87" in header) == (arch == platform.machine())
    assert zig.with_name("words").read_text().split() == ["cc", "-target", f"{arch}-linux-gnu.2.17"]
    command = [str(zig), "cc", "-target", f"{arch}-linux-gnu.2.17", f"-I{tmp_path / 'kept' / 'include'}"]
    assert shlex.split(words["CC"]) == command
    assert shlex.split(words["LDSHARED"]) == [*command, "-shared"]
    if arch != platform.machine():
        assert words["SETUPTOOLS_EXT_SUFFIX"] == f".cpython-311-{arch}-linux-gnu.so"
        assert words["_PYTHON_HOST_PLATFORM"] == f"linux-{arch}"
    else:
        assert "_PYTHON_HOST_PLATFORM" not in words
    (include / "pyconfig.h").write_text(HEADER.format(long=4))
    with pytest.raises(subprocess.CalledProcessError):
        made.headers(include)


def test_debian_s_header_of_this_machine_stands_apart(tmp_path: Path) -> None:
    include = tmp_path / "python3.11"
    include.mkdir()
    (include / "pyconfig.h").write_text("which?")
    assert compiler.configuration(include) == include / "pyconfig.h"
    apart = tmp_path / f"{platform.machine()}-linux-gnu" / "python3.11" / "pyconfig.h"
    apart.parent.mkdir(parents=True)
    apart.write_text("this")
    assert compiler.configuration(include) == apart
