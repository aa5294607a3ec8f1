"""Examples are programs that run as they stand, with the adapter inside and in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s
from softhca.driver import registry
from softhca.runtime import devices

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("mode", ["embedded", "process"])
def test_tasks_of_an_event_loop_wait_for_completions(mode):
    environment = {**os.environ, "SOFTHCA_ADAPTER": mode, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "softhca.pyverbs_alias", str(EXAMPLES / "asyncio_events.py")],
        env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"answer to question {number}" for number in range(5)]


CHILD = """
import os
from softhca.verbs.device import Context
from softhca.verbs.cq import CompChannel
context = Context()
channel = CompChannel(context)
descriptors = channel.fd, context.async_fd, context.cmd_fd
child = os.fork()
if not child:
    alive = 0
    for each in descriptors:
        try:
            os.fstat(each)
            alive += 1
        except OSError:
            pass
    os._exit(alive)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), [os.fstat(each) and 1 for each in descriptors])
"""


@pytest.mark.parametrize("mode", ["embedded", "process"])
def test_a_forked_child_has_none_of_the_descriptors_and_a_program_ends_with_them_open(mode):
    environment = {**os.environ, "SOFTHCA_ADAPTER": mode, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, timeout=limit_s(100)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 [1, 1, 1]\n", "")


LOCKED = """
import atexit, threading
@atexit.register  # before softhca's: runs after them, when the devices are closed
def leave_a_lock_to_a_thread_that_is_gone():
    thread = threading.Thread(target=driver.events._lock.acquire)
    thread.start()
    thread.join()
from softhca.verbs.device import Context
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.pd import PD
context = Context()
driver = context.driver
channel = CompChannel(context)
kept = channel.fd, CQ(context, 4, channel=channel), PD(context)
"""


@pytest.mark.parametrize("mode", ["embedded", "process"])
def test_a_program_ends_although_a_daemon_thread_has_kept_a_lock(mode):
    environment = {**os.environ, "SOFTHCA_ADAPTER": mode, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", LOCKED], env=environment, capture_output=True, text=True, timeout=limit_s(30)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("mode", ["embedded", "process"])
def test_memory_windows_give_and_take_rights(mode):
    environment = {**os.environ, "SOFTHCA_ADAPTER": mode, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "memory_windows.py")], env=environment, capture_output=True,
        text=True, timeout=limit_s(100),
    )  # fmt: skip
    assert done.returncode == 0
    # the adapter may warn of the request that comes too late
    assert done.stderr in ("", "an adapter has refused 1 requests of peers for their keys\n")
    told = [line.partition(":")[::2] for line in done.stdout.splitlines()]
    assert [what for what, _ in told] == [
        "bind", "write", "move", "write", "the region is in use", "unbind", "bind", "write", "received",
        "write",
    ]  # fmt: skip
    assert "Errno: 16" in told[4][1]
    assert told[8][1] == " b'done' and the key is dead: True"
    assert told[9][1] == " Remote access error"
    assert all(" Success" in what for _, what in told[:4] + told[5:8])


def test_a_connection_goes_on_when_one_port_fails_and_then_the_other():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "port_failover.py")], env=environment, capture_output=True, text=True,
        timeout=limit_s(60),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Success: 'by the first port'; port 1, armed, port 1, armed",
        "the cable of port 1 is pulled",
        "Success: 'nothing is lost'; port 2, migrated, port 2, migrated",
        "events: PATH_MIG PATH_MIG",
        "Success: 'and again'; port 2, armed, port 2, armed",
        "the cable of port 2 is pulled",
        "Success: 'nothing is lost'; port 1, migrated, port 1, migrated",
        "events: PATH_MIG PATH_MIG",
        "Success: 'and again'; port 1, armed, port 1, armed",
    ]


@pytest.mark.parametrize("mode", ["embedded", "process"])
@pytest.mark.parametrize("name", ["rc_pingpong", "ud_pingpong"])
def test_programs_for_pyverbs_play_ping_pong(name, mode):
    environment = {**os.environ, "SOFTHCA_ADAPTER": mode}
    program = [sys.executable, str(EXAMPLES / f"{name}.py"), "--iters", "50"]
    command = [sys.executable, "-m", "softhca", "run", "--", *program]
    waiting = subprocess.Popen([*command, "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        port = waiting.stdout.readline().split()[-1]
        done = subprocess.run(
            [*command, "--port", port, "127.0.0.1"], env=environment, capture_output=True, text=True,
            timeout=limit_s(100),
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("50 round trips of ")
        assert waiting.stdout.readline().startswith("50 round trips of ")
        assert waiting.wait(limit_s(100)) == 0
    finally:
        waiting.terminate()
        waiting.communicate()


RDMA_CM = pytest.mark.parametrize(
    ("name", "server", "client", "said"),
    [
        ("rping", ["-s", "-a"], ["-c", "-C", "3", "-a"], "ping data: rdma-ping-2: ABCDEFGHIJKLMNOP"),
        ("ucmatose", ["-c", "3", "-b"], ["-c", "3", "-s"], "3 connections, 10 messages each way"),
    ],
)


def meet(name, address, server, client, said, mode, places):
    """Start both sides of an example, on devices at ``places``, and hear what the client says at last."""
    command = [sys.executable, "-m", "softhca.pyverbs_alias", str(EXAMPLES / f"{name}.py")]
    environments = [
        {
            **os.environ,
            "SOFTHCA_ADAPTER": mode,
            "SOFTHCA_DEVICES": f"softhca0={place}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        for place in places
    ]
    serving = subprocess.Popen(
        [*command, *server, address], env=environments[0], stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout.readline().startswith("listening")
        done = subprocess.run(
            [*command, *client, address], env=environments[1], capture_output=True, text=True,
            timeout=limit_s(100),
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[-1] == said
        assert serving.wait(limit_s(100)) == 0
    finally:
        serving.kill()
        serving.communicate()


@pytest.mark.parametrize("mode", ["embedded", "process"])
@RDMA_CM
def test_programs_of_rdma_cm_meet_by_address(mode, name, server, client, said, loopback_address):
    addresses = loopback_address(), loopback_address()
    meet(name, addresses[0], server, client, said, mode, [f"udp:{each}" for each in addresses])


@RDMA_CM
def test_programs_of_one_adapter_meet_by_its_address(name, server, client, said, loopback_address):
    address = loopback_address()
    registry.names()
    devices.add(f"kept=udp:{address}", "process")
    kept = registry.open_device("kept")
    place = f"unix:{devices.find('kept').process.path}"
    try:
        meet(name, "127.0.0.1", server, client, said, "process", [place, place])
    finally:
        kept.close()
        devices.remove("kept")
