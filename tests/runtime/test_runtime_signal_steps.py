"""A signal whose handler raises, as many programs' handlers of SIGALRM do: whatever step of a call it comes
at, the exception comes out of that call, the device, its queues and connections go on, no lock stays taken,
and nothing is left.  Compiled: interpreted, a turn of the adapter is such steps itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from machine_speed import limit_s
from softhca.native import build

HERE = Path(__file__).parent
LIMIT_S = limit_s(200)


Ask = Callable[[list[str], dict[str, str]], tuple[int, str]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that has signals come."""
    command = build.compiler()
    if command is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("signals") / "signal_steps.so"
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{sysconfig.get_path('include')}")
    subprocess.run([*command, *flags, str(HERE / "signal_steps.c"), "-o", str(made)], check=True)
    return made


@pytest.fixture(scope="module")
def signal_steps(library: Path) -> Iterator[Ask]:
    """A function that has the program run with words and an environment; gives its status and output."""
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    with subprocess.Popen(
        [sys.executable, str(HERE / "signal_steps_program.py"), "--serve"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    ) as program:  # fmt: skip
        assert program.stdin
        assert program.stdout
        lines, answers = program.stdin, program.stdout

        def ask(words: list[str], environment: dict[str, str]) -> tuple[int, str]:
            print(json.dumps([[str(library), *words], environment, LIMIT_S]), file=lines, flush=True)
            status, output = json.loads(answers.readline())
            return status, output

        yield ask
        lines.close()
        assert program.wait(LIMIT_S) == 0


@pytest.mark.parametrize(("operation", "stride"), [
    ("verbs_domains", 2), ("verbs_regions", 7), ("verbs_queues", 11), ("verbs_connections", 67),
    ("verbs_polls", 3), ("verbs_waits", 2),
    ("streams_connects", 67), ("streams_exchanges", 1), ("streams_waits", 5), ("streams_closes", 29),
    ("streams_lends", 1), ("streams_maps", 1), ("datagrams_lends", 1), ("datagrams_maps", 1),
    ("verbs_contexts", 23), ("datagrams_opens", 97), ("identifiers_opens", 61), ("identifiers_connects", 397),
    ("datagrams_exchanges", 1), ("channels_exchanges", 1), ("channels_buffers", 5), ("channels_closes", 61),
    ("mailboxes_exchanges", 5), ("mailboxes_many", 7), ("mailboxes_requests", 3),
    ("conditions_waits", 1), ("conditions_times", 1),
    ("objects_memories", 5), ("objects_pageables", 13), ("objects_rights", 5), ("objects_tables", 29),
])  # fmt: skip
def test_a_handler_that_raises_costs_the_call_alone(
    signal_steps: Ask, loopback_address: Callable[[], str], operation: str, stride: int
) -> None:
    run(signal_steps, loopback_address, operation, stride, "embedded")


def test_what_is_wrong_is_told(signal_steps: Ask, loopback_address: Callable[[], str]) -> None:
    status, output = signal_steps(["verbs_nothing"], {"SOFTHCA_DEVICES": f"steps=udp:{loopback_address()}"})
    assert status == 1
    assert "AttributeError: 'Verbs' object has no attribute 'nothing'" in output


@pytest.mark.parametrize(("operation", "stride"), [
    ("verbs_domains", 7), ("verbs_connections", 397), ("verbs_contexts", 131), ("verbs_waits", 11),
    ("streams_closes", 197), ("datagrams_exchanges", 1), ("channels_exchanges", 2),
    ("mailboxes_exchanges", 23),
])  # fmt: skip
def test_so_it_is_with_an_adapter_process(
    signal_steps: Ask, loopback_address: Callable[[], str], operation: str, stride: int
) -> None:
    run(signal_steps, loopback_address, operation, stride, "process")


def run(
    signal_steps: Ask, loopback_address: Callable[[], str], operation: str, stride: int, mode: str
) -> None:
    """The program, with an adapter of this kind."""
    status, output = signal_steps([operation, str(stride)], {
        "SOFTHCA_DEVICES": f"steps=udp:{loopback_address()}",
        "SOFTHCA_ADAPTER": mode,
        "SOFTHCA_FAULTS": "",
    })  # fmt: skip
    assert status == 0, output
    assert output.endswith(" steps, 0 wrong\n")
