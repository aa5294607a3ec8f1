"""The two runs of the whole suite: what begins first, and what one of them leaves out.

The suite runs with compiled modules and again interpreted.  What can't differ runs once, compiled:

* simulations of gates: where a file of ``tests/hardware`` reaches no hot module by any import, its own, its
  helpers' or those of what they import, nothing that it runs is compiled in either run (``hot_modules_of``
  follows the imports and decides).  So it is where the gates' other side is only a packet made beforehand
  or a plain table of keys, which ``tests/wire`` and ``tests/adapter`` hold in both runs; and messages between
  gates and the software adapter, most of which is simulation of gates;
* the tool that breaks copies of the source: it runs them interpreted, whatever runs the tool;
* guests: most of what runs is their kernel, and what they hold our adapter against is held without them, in
  both runs, by ``tests/replay`` and the same captures;
* perftest's programs: most of what runs is their own, and the interpreted run has those of ibverbs-utils on
  the same library;
* what reads reports, documents and the build's script.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import softhca

TESTS = Path(__file__).parent
PACKAGE = Path(softhca.__file__).parent
FILES = (
    "benchmarks/test_benchmarks_parsers.py",
    "benchmarks/test_benchmarks_report.py",
    "hardware/test_hardware_messages.py",
    "hardware/test_hardware_microcode_bind.py",
    "hardware/test_hardware_microcode_headers.py",
    "hardware/test_hardware_microcode_walk.py",
    "hardware/test_hardware_rmb_compare.py",
    "hardware/test_hardware_subsystem.py",
    "hardware/test_hardware_verilog.py",
    "interop/test_interop_ethernet.py",
    "interop/test_interop_judge.py",
    "interop/test_interop_matrix.py",
    "mutants/test_mutants_tool.py",
    "native/test_native_perftest.py",
    "test_compiler_copy.py",
)

LONG = (
    "cli/test_cli_end_to_end.py",
    "verbs/suite/test_suite_qp.py",
    "mutants/test_mutants_tool.py",
    "interop/test_interop_matrix.py",
    "verbs/suite/test_suite_datagrams.py",
    "cli/test_cli_faults.py",
    "runtime/test_runtime_open_fails.py",
    "mailbox/test_mailbox_box.py",
    "simulation/test_simulation_cluster.py",
    "simulation/test_simulation_minimise.py",
    "simulation/test_simulation_worlds.py",
    "simulation/test_simulation_cli.py",
    "verbs/suite/test_suite_rc_send.py",
    "verbs/suite/test_suite_pageable.py",
    "fuzz/test_fuzz_targets.py",
    "chaos/test_chaos_sample.py",
    "hardware/test_hardware_subsystem.py",
    "hardware/test_hardware_rmb_compare.py",
    "hardware/test_hardware_verilog.py",
    "hardware/test_hardware_rmb_formal.py",
)
"""Files that take longest, to be begun first, so that no processor is left alone with one at the end."""


def left_out() -> list[Path]:
    """The files of tests that the interpreted run leaves out."""
    return [path for path in sorted(TESTS.rglob("test_*.py")) if runs_once(path)]


def runs_once(path: Path) -> bool:
    """Whether the interpreted run leaves this file of tests out."""
    name = path.relative_to(TESTS).as_posix()
    return name in FILES or (path.parent.name == "hardware" and not hot_modules_of(path))


def hot_modules_of(path: Path) -> set[str]:
    """Names of modules that are compiled in the other run, as far as imports lead from this file."""
    waiting, seen, hot = [path], set(), set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.with_suffix(".pxd").exists() and path.name != "__init__.py":
            hot.add(path.stem)
        waiting += files_imported_by(path)
    return hot


@functools.cache
def files_imported_by(path: Path) -> list[Path]:
    """Files of the package and of the tests that the statements of a file import, wherever these stand."""
    found: list[Path] = []
    tree = ast.parse(path.read_text())
    if path == PACKAGE / "__init__.py":  # what it imports when it is asked for, tests import by that name
        tree.body = [each for each in tree.body if not isinstance(each, (ast.FunctionDef, ast.If))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            found += files_of(name)
    return found


def files_of(name: str) -> list[Path]:
    """The files that an import of this name runs; none where it is neither the package's nor the tests'."""
    first, *rest = name.split(".")
    if first != "softhca":
        return [] if rest else sorted(TESTS.rglob(f"{first}.py"))
    files, place = [PACKAGE / "__init__.py"], PACKAGE
    if rest and rest[0] in softhca._CHANNELS:
        rest = ["channels"]
    for part in rest:
        place /= part
        files += [each for each in (place / "__init__.py", place.with_suffix(".py")) if each.exists()]
    if name == "softhca.cli.main":  # it imports a command when that is asked for: in tests of hardware, these
        files += sorted(PACKAGE.glob("cli/rmb*.py"))
    return files
