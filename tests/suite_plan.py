"""The two runs of the whole suite: who reads what first, what begins first, and what one of them leaves out.

The suite runs with compiled modules and again interpreted.  What can't differ, or what the interpreted run
holds by other tests already, runs once, compiled.  ``ONCE`` names it, with why, and with the tests that both
runs have instead: together these import every hot module that what is left out imports
(``tests/test_mode.py`` holds that).  And in the folders of ``COLD`` a file is left out that reaches no hot
module by any import, its own, its helpers' or those of what they import, as nothing that it runs is compiled
in either run (``hot_modules_of`` follows the imports and decides).
"""

from __future__ import annotations

import ast
import functools
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import softhca

TESTS = Path(__file__).parent
PACKAGE = Path(softhca.__file__).parent
COLD = ("fabric", "hardware")


@dataclass(frozen=True)
class Once:
    """Files of tests that the interpreted run leaves out, why, and what it has ``instead``."""

    why: str
    files: tuple[str, ...]
    instead: tuple[str, ...] = ()


ONCE = (
    Once(
        "They read reports, documents and the scripts of builds and runs; what blocks of documents,"
        " benchmarks and figures call, the packages' own tests call.",
        (
            "bare/test_bare_plan.py",
            "benchmarks/test_benchmarks_first_minute.py",
            "benchmarks/test_benchmarks_parsers.py",
            "benchmarks/test_benchmarks_rd.py",
            "benchmarks/test_benchmarks_report.py",
            "benchmarks/test_benchmarks_sockets.py",
            "docs/test_docs_blocks.py",
            "sockets/test_sockets_benchmark.py",
            "test_compiler_copy.py",
            "test_environment.py",
            "test_suite_ends.py",
            "testing/test_testing_imports.py",
        ),
        (
            "adapter/test_adapter_rd.py",
            "runtime/test_runtime_pair.py",
            "sockets/test_sockets_datagrams.py",
            "sockets/test_sockets_lives.py",
            "sockets/test_sockets_stream.py",
            "verbs/suite/test_suite_rdma.py",
        ),
    ),
    Once(
        "Most of what runs is simulation of gates or of their microcode; the other side is a packet made"
        " beforehand, a table of keys or pages, or the software adapter, which the packages' tests hold in"
        " both runs.",
        (
            "hardware/test_hardware_cli_asm.py",
            "hardware/test_hardware_cli_messages.py",
            "hardware/test_hardware_completion_engine.py",
            "hardware/test_hardware_fifo.py",
            "hardware/test_hardware_fpga.py",
            "hardware/test_hardware_messages.py",
            "hardware/test_hardware_microcode_bind.py",
            "hardware/test_hardware_microcode_headers.py",
            "hardware/test_hardware_microcode_receive.py",
            "hardware/test_hardware_microcode_send.py",
            "hardware/test_hardware_microcode_walk.py",
            "hardware/test_hardware_proofs.py",
            "hardware/test_hardware_random_messages.py",
            "hardware/test_hardware_rmb_compare.py",
            "hardware/test_hardware_rmb_equivalence.py",
            "hardware/test_hardware_rmb_trace.py",
            "hardware/test_hardware_scheduling.py",
            "hardware/test_hardware_subsystem.py",
            "hardware/test_hardware_translation.py",
            "hardware/test_hardware_verilog.py",
            "simulation/test_simulation_gates.py",
        ),
        (
            "adapter/test_adapter_windows.py",
            "driver/test_driver_posting.py",
            "simulation/test_simulation_worlds.py",
            "wire/test_wire_headers.py",
        ),
    ),
    Once(
        "The tools break copies of the source and run these interpreted, whatever runs the tools.",
        ("conformance/test_conformance_mutants.py", "mutants/test_mutants_tool.py"),
        ("conformance/test_conformance_checks.py", "mailbox/test_mailbox_rings.py"),
    ),
    Once(
        "Signals at chosen steps of compiled modules' callers: interpreted, an adapter's turn is such steps"
        " itself, and may be interrupted.",
        ("runtime/test_runtime_signal_steps.py",),
        (
            "machine/test_machine_deferred_signals.py",
            "runtime/test_runtime_pair.py",
            "sockets/test_sockets_stream.py",
        ),
    ),
    Once(
        "Most of what runs is the guests' kernel; what they hold our adapter against is held without them by"
        " the same captures.",
        (
            "interop/test_interop_ethernet.py",
            "interop/test_interop_judge.py",
            "interop/test_interop_kernel.py",
            "interop/test_interop_matrix.py",
        ),
        (
            "replay/test_replay_requester.py",
            "replay/test_replay_responder.py",
            "runtime/test_runtime_pair.py",
        ),
    ),
    Once(
        "Programs in C, their own code, our library's and our header's, which is compiled in both runs. What"
        " they ask of adapters and fabrics, programs in Python ask in both runs.",
        (
            "native/test_native_client.py",
            "native/test_native_fabric.py",
            "native/test_native_fuzz.py",
            "native/test_native_hostile.py",
            "native/test_native_importing.py",
            "native/test_native_loading.py",
            "native/test_native_memory.py",
            "native/test_native_mpi.py",
            "native/test_native_objects.py",
            "native/test_native_perftest.py",
            "native/test_native_preload.py",
            "native/test_native_programs.py",
            "native/test_native_qemu.py",
            "native/test_native_rdmacm.py",
            "native/test_native_recording.py",
            "native/test_native_run.py",
            "native/test_native_scaling.py",
            "native/test_native_several_addresses.py",
            "native/test_native_two_ports.py",
            "native/test_native_two_versions.py",
            "queues/test_queues_header.py",
        ),
        (
            "adapter/test_adapter_context_sharing.py",
            "cli/test_cli_run_fabric.py",
            "queues/test_queues_layout.py",
            "runtime/test_runtime_process.py",
            "runtime/test_runtime_process_hostile.py",
            "verbs/suite/test_suite_qp.py",
        ),
    ),
    Once(
        "How commands, campaigns and their workers are started, talk, report and end, what administrators'"
        " programs are answered, and how a list of faults gets shorter: plain Python over worlds, ends and"
        " adapter processes that both runs have.",
        (
            "cli/test_cli_adapter.py",
            "cli/test_cli_captures.py",
            "cli/test_cli_completion.py",
            "cli/test_cli_doctor.py",
            "cli/test_cli_end_to_end.py",
            "cli/test_cli_entry.py",
            "cli/test_cli_exchanges.py",
            "cli/test_cli_explain.py",
            "cli/test_cli_fabric.py",
            "cli/test_cli_fabric_administration.py",
            "cli/test_cli_fabric_queries.py",
            "cli/test_cli_fabric_tools.py",
            "cli/test_cli_faults.py",
            "cli/test_cli_kernel_files.py",
            "cli/test_cli_main.py",
            "cli/test_cli_manual.py",
            "cli/test_cli_remedies.py",
            "cli/test_cli_roles.py",
            "cli/test_cli_run.py",
            "cli/test_cli_run_ethernet.py",
            "cli/test_cli_run_fabric_programs.py",
            "cli/test_cli_shared_adapters.py",
            "cli/test_cli_usage.py",
            "cli/test_cli_values.py",
            "simulation/test_simulation_cli.py",
            "simulation/test_simulation_cluster.py",
            "simulation/test_simulation_cluster_runner.py",
            "simulation/test_simulation_minimise.py",
        ),
        (
            "cli/test_cli_perf_loops.py",
            "cli/test_cli_run_fabric.py",
            "links/test_links_faulty.py",
            "runtime/test_runtime_pair.py",
            "runtime/test_runtime_process.py",
            "simulation/test_simulation_worlds.py",
            "sockets/test_sockets_stream.py",
        ),
    ),
    Once(
        "Bugs put into worlds for their judges to find, which are plain Python, and what else each kind of"
        " world must show. Both runs have all these worlds as they are, those of each kind with one digest.",
        (
            "simulation/test_simulation_conversations.py",
            "simulation/test_simulation_datagram_sockets.py",
            "simulation/test_simulation_datagrams.py",
            "simulation/test_simulation_disks.py",
            "simulation/test_simulation_exchanges.py",
            "simulation/test_simulation_failover.py",
            "simulation/test_simulation_holds.py",
            "simulation/test_simulation_judging.py",
            "simulation/test_simulation_ladder.py",
            "simulation/test_simulation_mailboxes.py",
            "simulation/test_simulation_managers.py",
            "simulation/test_simulation_oracles.py",
            "simulation/test_simulation_streams.py",
            "simulation/test_simulation_switches.py",
        ),
        ("simulation/test_simulation_worlds.py",),
    ),
    Once(
        "Tests of rdma-core and its classes' names and behaviour, call by call, of the public classes, which"
        " are plain Python; the suite of the verbs makes each of these calls in every mode.",
        (
            "pyverbs_suites/test_pyverbs_suites.py",
            "verbs/test_verbs_differential.py",
            "verbs/test_verbs_names.py",
        ),
        ("verbs/suite/test_suite_qp.py", "verbs/suite/test_suite_rdma.py"),
    ),
    Once(
        "Congestion at Ethernet switches in virtual time: how fair shares are, and what the oracle notices."
        " Both runs have the same worlds with their digests, and the adapter's answer to marks.",
        ("simulation/test_simulation_contest.py", "simulation/test_simulation_ethernet.py"),
        ("adapter/test_adapter_congestion.py", "simulation/test_simulation_worlds.py"),
    ),
    Once(
        "What Wireshark and our part of it say of packets that worlds send; their digests hold that both runs"
        " send the same ones.",
        (
            "management/test_management_cm_tshark.py",
            "storage/test_storage_tshark.py",
            "wire/test_wire_wireshark.py",
        ),
        (
            "management/test_management_cm.py",
            "simulation/test_simulation_worlds.py",
            "wire/test_wire_tshark.py",
        ),
    ),
    Once(
        "Kills and missing means while processes start and end: plain Python and the kernel's doing; what"
        " the living then exchange, both runs hold.",
        (
            "chaos/test_chaos_exits.py",
            "chaos/test_chaos_sample.py",
            "runtime/test_runtime_failing_calls.py",
            "runtime/test_runtime_open_fails.py",
        ),
        ("runtime/test_runtime_process.py", "runtime/test_runtime_process_hostile.py"),
    ),
    Once(
        "Who starts, finds, shares, forks, leaves and outlives an adapter or a fabric, and what settings and"
        " versions mean: plain Python, descriptors and the kernel's doing. Both runs have the turns, rings,"
        " links and threads of adapters, here and in processes of their own.",
        (
            "runtime/test_runtime_clients.py",
            "runtime/test_runtime_devices.py",
            "runtime/test_runtime_fabric_adapters.py",
            "runtime/test_runtime_fabric_control.py",
            "runtime/test_runtime_fabric_ethernet.py",
            "runtime/test_runtime_fork.py",
            "runtime/test_runtime_fork_devices.py",
            "runtime/test_runtime_host_interface.py",
            "runtime/test_runtime_importing.py",
            "runtime/test_runtime_leaks.py",
            "runtime/test_runtime_messages.py",
            "runtime/test_runtime_process_last.py",
            "runtime/test_runtime_process_main.py",
            "runtime/test_runtime_process_silent.py",
            "runtime/test_runtime_refusals.py",
            "runtime/test_runtime_same_host_automatic.py",
            "runtime/test_runtime_shared_device.py",
            "runtime/test_runtime_silent_receiver.py",
            "runtime/test_runtime_specification.py",
            "runtime/test_runtime_targets.py",
            "runtime/test_runtime_umad_server.py",
            "runtime/test_runtime_versions.py",
            "runtime/test_runtime_wakeups.py",
        ),
        (
            "runtime/test_runtime_event_channels.py",
            "runtime/test_runtime_listener.py",
            "runtime/test_runtime_loop_rules.py",
            "runtime/test_runtime_pair.py",
            "runtime/test_runtime_process.py",
            "runtime/test_runtime_process_hostile.py",
            "runtime/test_runtime_same_host.py",
            "runtime/test_runtime_served_turns.py",
            "simulation/test_simulation_worlds.py",
        ),
    ),
    Once(
        "Whole programs, ours and others', that meet, fork, die and are told of it, over real sockets: each"
        " starts interpreters, and which bytes they exchange is held in both runs by the same packages' tests"
        " without programs.",
        (
            "channels/test_channels_forks.py",
            "channels/test_channels_processes.py",
            "driver/test_driver_connections.py",
            "mailbox/test_mailbox_example.py",
            "model/test_model_default_buffer.py",
            "sockets/test_sockets_adapter_gone.py",
            "sockets/test_sockets_cpython.py",
            "sockets/test_sockets_faults.py",
            "sockets/test_sockets_forking.py",
            "sockets/test_sockets_processes.py",
            "sockets/test_sockets_programs.py",
            "sockets/test_sockets_unmodified.py",
            "storage/test_storage_live.py",
            "verbs/test_verbs_alias.py",
            "verbs/test_verbs_changing_addresses.py",
            "verbs/test_verbs_cmid.py",
            "verbs/test_verbs_cmid_forks.py",
            "verbs/test_verbs_cmid_places.py",
            "verbs/test_verbs_examples.py",
            "verbs/test_verbs_following_addresses.py",
            "verbs/test_verbs_program_ends.py",
            "verbs/test_verbs_two_versions.py",
        ),
        (
            "channels/test_channels_hostile.py",
            "channels/test_channels_sync.py",
            "driver/test_driver_rdmacm_rules.py",
            "mailbox/test_mailbox_box.py",
            "runtime/test_runtime_pair.py",
            "runtime/test_runtime_process.py",
            "simulation/test_simulation_worlds.py",
            "sockets/test_sockets_lives.py",
            "sockets/test_sockets_stream.py",
            "storage/test_storage_network.py",
            "verbs/test_verbs_cmid_rules.py",
            "verbs/test_verbs_several_addresses.py",
            "verbs/test_verbs_threads.py",
        ),
    ),
)
"""What runs once, in groups of one reason."""

FILES = tuple(sorted(name for group in ONCE for name in group.files))

LONG = (
    "hardware/test_hardware_verilog.py",
    "interop/test_interop_matrix.py",
    "mutants/test_mutants_tool.py",
    "cli/test_cli_end_to_end.py",
    "hardware/test_hardware_messages.py",
    "hardware/test_hardware_subsystem.py",
    "verbs/test_verbs_stress.py",
    "docs/test_docs_blocks.py",
    "runtime/test_runtime_signal_steps.py",
    "native/test_native_fuzz.py",
    "pyverbs_suites/test_pyverbs_suites.py",
    "hardware/test_hardware_proofs.py",
    "hardware/test_hardware_rmb_formal.py",
    "native/test_native_fabric.py",
    "simulation/test_simulation_cluster.py",
    "sockets/test_sockets_faults.py",
    "runtime/test_runtime_failing_calls.py",
    "native/test_native_two_versions.py",
    "interop/test_interop_ethernet.py",
    "verbs/test_verbs_examples.py",
    "chaos/test_chaos_sample.py",
    "fuzz/test_fuzz_targets.py",
    "cli/test_cli_run_ethernet.py",
    "cli/test_cli_faults.py",
    "simulation/test_simulation_worlds.py",
    "verbs/suite/test_suite_rdma.py",
    "native/test_native_client.py",
    "cli/test_cli_run_fabric_programs.py",
    "hardware/test_hardware_random_messages.py",
    "simulation/test_simulation_minimise.py",
    "native/test_native_rdmacm.py",
    "simulation/test_simulation_oracles.py",
    "verbs/suite/test_suite_qp.py",
    "simulation/test_simulation_switches.py",
    "simulation/test_simulation_exchanges.py",
    "simulation/test_simulation_mailboxes.py",
    "verbs/test_verbs_cmid.py",
    "channels/test_channels_processes.py",
    "native/test_native_perftest.py",
    "hardware/test_hardware_rmb_compare.py",
    "cli/test_cli_fabric_tools.py",
    "simulation/test_simulation_gates.py",
    "hardware/test_hardware_fpga.py",
    "test_mode.py",
    "hardware/test_hardware_microcode_bind.py",
    "native/test_native_run.py",
    "cli/test_cli_run.py",
    "runtime/test_runtime_importing.py",
    "native/test_native_recording.py",
    "verbs/suite/test_suite_pageable.py",
    "sockets/test_sockets_cpython.py",
    "wire/test_wire_wireshark.py",
    "simulation/test_simulation_streams.py",
    "runtime/test_runtime_same_host.py",
    "hardware/test_hardware_cli_messages.py",
    "runtime/test_runtime_open_fails.py",
    "runtime/test_runtime_shared_device.py",
    "sockets/test_sockets_benchmark.py",
    "runtime/test_runtime_devices.py",
    "sockets/test_sockets_unmodified.py",
    "mailbox/test_mailbox_many.py",
    "simulation/test_simulation_cli.py",
    "runtime/test_runtime_process_silent.py",
    "verbs/test_verbs_program_ends.py",
    "hardware/test_hardware_assembler.py",
    "native/test_native_several_addresses.py",
    "model/test_model_life.py",
    "runtime/test_runtime_process.py",
    "native/test_native_qemu.py",
    "mailbox/test_mailbox_box.py",
    "driver/test_driver_connections.py",
    "runtime/test_runtime_pair.py",
    "wire/test_wire_headers.py",
    "simulation/test_simulation_cluster_runner.py",
    "sockets/test_sockets_scarce.py",
    "runtime/test_runtime_targets.py",
    "test_suite_ends.py",
    "simulation/test_simulation_datagram_sockets.py",
    "bare/test_bare_plan.py",
    "simulation/test_simulation_conversations.py",
    "verbs/test_verbs_cmid_places.py",
)
"""Files that take longest, to be begun first, so that no processor is left alone with one at the end."""


def workers_of(processors: int) -> int:
    """How many workers run the tests: half more than there are processors, as a fifth of a worker's time is
    waiting, for programs that begin and for timers of connections."""
    return (3 * processors + 1) // 2


def places_of_tests(worker: int, workers: int, without: Iterable[str | Path] = ()) -> list[str]:
    """Folders and files of all tests, in the order in which this worker reads them; not those ``without``
    which the run is, as pytest reads a file that it is told to read though it is told to ignore it.
    """
    absent = {Path(each).resolve() for each in without}
    places = sorted({TESTS / path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")} - absent)
    start = len(places) * worker // workers
    return [str(path) for path in places[start:] + places[:start]]


def random_inputs(count: int) -> int:
    """Of ``count`` random inputs, as many as this run makes: the interpreted one a fourth, for which it takes
    as long as the compiled one for all."""
    return max(1, count // 4) if os.environ.get("SOFTHCA_EXPECT") == "interpreted" else count


def pair_modes(suite: bool, programs: bool, name: str = "") -> list[str]:
    """Where the adapters of two devices live, in turn, for tests of the suite of the verbs (``suite``) and
    others; ``programs``: the test starts some, which cannot live in virtual time.  The interpreted run has
    each test of the suite in one of them, by the test's ``name``: which code the adapters and the driver run
    does not depend on where they live, and what carries what they say to each other, ``runtime``'s tests hold
    in both runs.
    """
    modes = ["embedded", "process", "same_host"]
    if suite and not programs:
        modes.append("virtual")
    if suite and os.environ.get("SOFTHCA_EXPECT") == "interpreted":
        modes.remove("embedded")  # what it runs, the others run too
        return [modes[zlib.crc32(name.encode()) % len(modes)]]
    return modes


def left_out() -> list[Path]:
    """The files of tests that the interpreted run leaves out."""
    return [path for path in sorted(TESTS.rglob("test_*.py")) if runs_once(path)]


def runs_once(path: Path) -> bool:
    """Whether the interpreted run leaves this file of tests out."""
    name = path.relative_to(TESTS).as_posix()
    return name in FILES or (path.parent.name in COLD and not hot_modules_of(path))


@functools.cache
def hot_modules_of(path: Path) -> frozenset[str]:
    """Names of modules that are compiled in the other run, as far as imports lead from this file."""
    shared = path.with_name("conftest.py")
    waiting, seen, hot = [path], set(), set()
    if path.parent != TESTS and shared.exists():  # what all folders share is no reason by itself
        waiting.append(shared)
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if is_compiled(path):
            hot.add(path.stem)
        waiting += files_imported_by(path)
    return frozenset(hot)


def statements_of(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements below it, wherever these stand; what they compute holds no import."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, part, ())
        yield node


@functools.cache
def is_compiled(path: Path) -> bool:
    """Whether the other run has this module compiled."""
    return path.name != "__init__.py" and path.with_suffix(".pxd").exists()


@functools.cache
def files_imported_by(path: Path) -> list[Path]:
    """Files of the package and of the tests that the statements of a file import, wherever these stand."""
    found: list[Path] = []
    tree = ast.parse(path.read_text())
    if path == PACKAGE / "__init__.py":  # what it imports when it is asked for, tests import by that name
        tree.body = [each for each in tree.body if not isinstance(each, (ast.FunctionDef, ast.If))]
    for node in statements_of(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            found += files_of(name)
    return found


@functools.cache
def _test_modules() -> dict[str, list[Path]]:
    """The files of the tests by their modules' names."""
    found: dict[str, list[Path]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        found.setdefault(path.stem, []).append(path)
    return found


@functools.cache
def files_of(name: str) -> list[Path]:
    """The files that an import of this name runs; none where it is neither the package's nor the tests'."""
    first, *rest = name.split(".")
    if first != "softhca":
        return [] if rest else _test_modules().get(first, [])
    files, place = [PACKAGE / "__init__.py"], PACKAGE
    if rest and rest[0] in softhca._CHANNELS:
        rest = ["channels"]
    for part in rest:
        place /= part
        files += [each for each in (place / "__init__.py", place.with_suffix(".py")) if each.exists()]
    if name == "softhca.cli.main":  # it imports a command when that is asked for: in tests of hardware, these
        files += sorted(PACKAGE.glob("cli/rmb*.py"))
    return files
