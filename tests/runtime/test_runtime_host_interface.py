"""A program in C, without Python in it, as a client of an adapter process that runs as users run it."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from runtime_programs import Program

from machine_speed import limit_s
from softhca.queues.header import header
from softhca.queues.layout import ABI_VERSION

COMPILER = shutil.which(os.environ.get("CC", "").split(" ")[0] or "gcc") or shutil.which("cc")
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror")
CLIENT = Path(__file__).with_name("host_interface_client.c")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def compiled(folder, text):
    """The client, compiled with the header ``text``."""
    (folder / "softhca.h").write_text(text)
    command = [COMPILER, *FLAGS, f"-I{folder}", str(CLIENT), "-o", str(folder / "client")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "client"


@pytest.fixture
def served(loopback_address):
    """The socket of an adapter process that was started by hand."""
    path = f"@softhca-client-{os.getpid()}"
    program = Program("../../src/softhca/runtime/process_main.py", f"s=udp:{loopback_address()}",
                      "--listen", path, "--stay")
    assert program.child.stdout.readline() == "ready\n"
    yield path
    assert program.end() == 0


def run(client, path):
    return subprocess.run([client, path], capture_output=True, text=True, timeout=limit_s(60))


def test_a_program_in_c_writes_a_mebibyte(tmp_path, served):
    client = compiled(tmp_path, header())
    for _ in range(2):  # what the first one owned is free again
        done = run(client, served)
        assert (done.returncode, done.stdout, done.stderr) == (0, "1 MiB was written\n", "")


def test_a_program_in_c_of_another_version_is_refused(tmp_path, served):
    ours = f"#define SOFTHCA_ABI_VERSION {ABI_VERSION}U\n"
    assert ours in header()
    other = header().replace(ours, f"#define SOFTHCA_ABI_VERSION {ABI_VERSION + 1}U\n")
    done = run(compiled(tmp_path, other), served)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"errno {errno.EPROTONOSUPPORT}" in done.stderr
