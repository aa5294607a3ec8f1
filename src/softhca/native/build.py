"""Building the library for programs in C: ``python -m softhca.native.build TARGET``.

``CC`` names the compiler (default: gcc or cc) and ``CFLAGS`` what it is told besides.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from softhca.driver.rdmacm import states
from softhca.native import NAME, PATHS_NAME
from softhca.queues.header import header

SOURCES = Path(__file__).resolve().parent
WORDS = ("-std=gnu11", "-O2", "-g0", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-pthread")
"""What the compiler is told."""
LINKED = (
    f"-Wl,-soname,{NAME}",
    f"-Wl,--version-script={SOURCES / 'libibverbs.map'}",
    "-Wl,-z,nodelete",
    "-Wl,-z,now",
)
PATHS_SOURCES = (*sorted((SOURCES / "preload").glob("*.c")), SOURCES / "host.c")


def compiler() -> list[str] | None:
    """The C compiler's command, None where there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        return named if shutil.which(named[0]) else None
    return next(([name] for name in ("gcc", "cc") if shutil.which(name)), None)


def states_header() -> str:
    """What an identifier of RDMA CM may do when, in C: ``CM_…`` for each state and input, and the table
    ``cm_transitions`` of the state after an input, -1 where it cannot be.
    """
    names = {name: value for name, value in vars(states).items() if name.isupper() and type(value) is int}
    inputs = sorted(set(names) - set(states.STATES), key=names.__getitem__)
    rows = ([row.get(names[each], -1) for each in inputs] for _, row in sorted(states.TRANSITIONS.items()))
    return "\n".join([
        "/* Made of softhca.driver.rdmacm.states. */",
        "enum { " + ", ".join(f"CM_{name}" for name in states.STATES) + " };",
        "enum { " + ", ".join(f"CM_{name}" for name in inputs) + " };",
        f"static const signed char cm_transitions[{len(states.STATES)}][{len(inputs)}]",
        "    __attribute__((unused)) = {",
        *("    {" + ", ".join(map(str, row)) + "}," for row in rows),
        "};",
        "",
    ])  # fmt: skip


def build(target: Path, flags: Sequence[str] = ()) -> None:
    """Compile the library to the file ``target``, and what stands beside it, with further words ``flags`` for
    the compiler.

    OSError where there is no compiler; CalledProcessError where it fails, which has said why on stderr.
    """
    command = compiler()
    if command is None:
        raise OSError("there is no C compiler")
    sources = sorted(str(each) for each in SOURCES.glob("*.c"))
    flags = [*shlex.split(os.environ.get("CFLAGS", "")), *flags]
    if not any(each.startswith("-g") for each in flags):
        # parts of a C library may come with debugging information, which tells where it was built
        flags.append("-Wl,--strip-debug")
    flags = [*WORDS, *flags]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "softhca.h").write_text(header())
        Path(folder, "cm_states.h").write_text(states_header())
        made, paths = str(Path(folder, NAME)), str(Path(folder, PATHS_NAME))
        command += [*flags, "-shared"]
        subprocess.run([*command, f"-I{folder}", *LINKED, *sources, "-o", made], check=True)
        preload = [str(each) for each in PATHS_SOURCES]
        subprocess.run([*command, f"-I{folder}", *preload, "-ldl", "-o", paths], check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        for source, place in ((made, target), (paths, target.with_name(PATHS_NAME))):
            new = place.with_name(f".{place.name}")
            shutil.copy(source, new)
            new.replace(place)  # a running program may have the former one mapped


if __name__ == "__main__":
    build(Path(sys.argv[1]))
