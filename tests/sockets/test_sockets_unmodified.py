"""``softhca run --sockets``: programs that know nothing of softhca, by RDMA; and beside softhca, by TCP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from machine_speed import limit_s

PROGRAM = Path(__file__).with_name("unmodified_program.py")
CASES = {"asyncio echo", "asyncio sendfile", "http", "https", "xmlrpc", "socketserver", "multiprocessing"}

UNKNOWN = {"https": (True, None), "xmlrpc": (True, None), "multiprocessing": (True, None)}


def results(*command: str) -> dict[str, tuple[bool, bool | None]]:
    """What the program prints."""
    done = subprocess.run(
        [*command, sys.executable, str(PROGRAM)],
        capture_output=True, text=True, timeout=limit_s(60), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return {name: tuple(found) for name, found in json.loads(done.stdout).items()}


def test_the_standard_library_s_servers_and_clients_go_by_rdma() -> None:
    found = results(sys.executable, "-m", "softhca", "run", "--sockets", "--")
    assert found == dict.fromkeys(CASES, (True, True)) | UNKNOWN


def test_a_run_without_the_option_changes_nothing() -> None:
    found = results(sys.executable, "-m", "softhca", "run", "--")
    assert found == dict.fromkeys(CASES, (True, False)) | UNKNOWN


EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = (sys.executable, "-m", "softhca", "run", "--sockets", "--", sys.executable)


def port_of(server: subprocess.Popen[str]) -> str:
    """What the server's first line ends with."""
    assert server.stdout is not None
    return server.stdout.readline().split()[-1]


def test_the_example_of_a_stream_tells_what_arrived() -> None:
    program = str(EXAMPLES / "stream_speed.py")
    with subprocess.Popen(
        [*RUN, program, "--server", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        sizes = ["--seconds", "0.1", "--length", "65536", "--port", port_of(server)]
        done = subprocess.run(
            [*RUN, program, "--client", "127.0.0.1", *sizes],
            capture_output=True, text=True, timeout=limit_s(60), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said = server.communicate(timeout=limit_s(30))[0]
    assert done.stdout.startswith("to 127.0.0.1: ")
    assert said.startswith("from 127.0.0.1: ")
    assert done.stdout.split(":")[1].split(" in ")[0] == said.split(":")[1].split(" in ")[0]


def test_the_example_of_asyncio_echoes() -> None:
    program = str(EXAMPLES / "asyncio_echo.py")
    with subprocess.Popen([*RUN, program, "server", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            done = subprocess.run(
                [*RUN, program, "client", port_of(server), "hello, RDMA"],
                capture_output=True, text=True, timeout=limit_s(60), check=False,
            )  # fmt: skip
        finally:
            server.kill()
    assert (done.returncode, done.stdout) == (0, "hello, RDMA\n"), done.stderr
