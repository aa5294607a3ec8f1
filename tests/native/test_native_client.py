"""What the distribution's programs do not try: ``verbs_client.c`` and ``rdmacm_client.c``, as they are and
with sanitizers; kills.
"""

import contextlib
import os
import random
import re
import signal
import subprocess
from pathlib import Path

import pytest
from kills import kill, left, resources
from native_world import CASES, CM_CASES, LIMIT_S, World, both, compiled_client, needs

from softhca.driver.rdmacm import states
from softhca.native import build
from softhca.runtime.adapter_process import connect_to
from softhca.runtime.server import MAX_APPLICATIONS

LIAR = str(Path(__file__).with_name("lying_adapter.py"))
LIES = ["doorbell", "sends", "receives", "send elements", "receive elements", "inline data",
        "shared receives", "shared elements", "work queue", "scaled", "table"]  # fmt: skip
MEMORIES = ["short", "of no bytes", "not sealed", "endless"]
"""What an adapter process says that cannot be, by its names in ``lying_adapter.py``."""
KERNEL_HEADER = Path("/usr/include/rdma/rdma_user_cm.h")
KERNEL_COMMANDS = 23
"""What Linux 6.1 has, the oldest that is compared with; two came later."""


@pytest.fixture(scope="module")
def client(libibverbs, tmp_path_factory):
    return compiled_client(libibverbs, tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def cm_client(libibverbs, tmp_path_factory):
    return compiled_client(libibverbs, tmp_path_factory.mktemp("cm_client"), "rdmacm_client")


@pytest.mark.parametrize("case", CASES)
def test_a_case(world, client, case):
    done = world.run(str(client), case)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_blocks_that_the_adapter_does_not_map(world, client):
    done = world.run(str(client), "buffers", SOFTHCA_BUFFERS="0")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("case", CASES)
def test_a_case_with_sanitizers(world, client, case, sanitized):
    done = world.run(str(client), case, **sanitized)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("lie", [*LIES, *MEMORIES])
def test_an_adapter_is_not_believed_what_cannot_be(libibverbs, client, sanitized, lie):
    own = World(libibverbs, "*", entry=(LIAR, lie))
    try:
        case = "lied_to_of_tables" if lie == "table" else "lied_to" if lie in LIES else "lied_to_of_memory"
        done = own.run(str(client), case, **sanitized)
    finally:
        own.end()
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_forks_of_a_program_with_rdma_cm(world, cm_client):
    done = world.run(str(cm_client), "forks")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("case", CM_CASES)
def test_a_case_of_rdma_cm_with_sanitizers(world, cm_client, case, sanitized):
    done = world.run(str(cm_client), case, **sanitized)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(("command", "serves", "asks"), [
    ("ucmatose -c 2", "", "-s 127.0.0.1"), ("udaddy -c 2", "", "-s 127.0.0.1"),
    ("rstream -S 3000 -C 10 -T v", "", "-s 127.0.0.1"), ("rping -C 3 -V", "-s", "-c -a 127.0.0.1"),
])  # fmt: skip
def test_a_program_of_rdma_cm_with_sanitizers(world, command, serves, asks, sanitized):
    needs(command.partition(" ")[0])
    both(world, world, f"{command} {serves}".split(), f"{command} {asks}".split(), **sanitized)


@pytest.mark.parametrize("program", [
    "ibv_rc_pingpong -c -e", "ibv_rc_pingpong -c -N", "ibv_ud_pingpong -s 1000 -e", "ibv_srq_pingpong -q 3",
    "ibv_xsrq_pingpong -e",
])  # fmt: skip
def test_a_program_with_sanitizers(world, program, sanitized, unused_port):
    needs(program.partition(" ")[0])
    rounds = () if "xsrq" in program else ("-n", "30")
    world.pair(unused_port, *program.split(), "-g", "0", *rounds, **sanitized)


def test_what_was_killed_leaves_nothing(world, client):
    kill(client, world.environment, 4, random.Random(1))
    before = left(world.socket, world.adapter.pid)
    kill(client, world.environment, 24, random.Random(2))
    assert left(world.socket, world.adapter.pid, before) == before
    assert world.run(str(client), "threads").returncode == 0


def test_several_programs_share_an_adapter(world, client):
    programs = [subprocess.Popen([str(client), "storm"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 env=world.environment) for _ in range(6)]  # fmt: skip
    try:
        for program in programs:
            assert program.stdout.read(8)
        assert world.run(str(client), "resets").returncode == 0
    finally:
        for program in programs:
            program.kill()
            program.wait()
            program.stdout.close()
    assert left(world.socket, world.adapter.pid)[0]["hosts"] == 0


def test_programs_are_told_when_an_adapter_has_gone(libibverbs, cm_client):
    own = World(libibverbs, "*")
    try:
        with own.start(str(cm_client), "removal", SOFTHCA_DEBUG="") as program:
            assert program.stdout.read(1) == "."
            own.adapter.kill()
            said, _ = program.communicate(timeout=LIMIT_S)
    finally:
        own.adapter.kill()
        own.end()
    assert program.returncode == 0, said


@pytest.mark.parametrize("watched", [False, True])
def test_descriptors_say_that_an_adapter_has_gone(libibverbs, client, sanitized, watched):
    own = World(libibverbs, "*")
    told = sanitized if watched else {}
    try:
        with own.start(str(client), "orphaned", SOFTHCA_DEBUG="", **told) as program:
            assert program.stdout.read(1) == "."
            own.adapter.kill()
            said, _ = program.communicate(timeout=LIMIT_S)
    finally:
        own.adapter.kill()
        own.end()
    assert program.returncode == 0, said


def held(world):
    """What the adapter process has for its hosts, and its descriptors."""
    return resources(world.socket), len(os.listdir(f"/proc/{world.adapter.pid}/fd"))


@pytest.mark.parametrize("watched", [False, True])
def test_who_has_no_descriptor_left_is_told_so_and_leaves_nothing_behind(
    libibverbs, client, sanitized, watched
):
    own = World(libibverbs, "*")
    told = sanitized if watched else {}
    try:
        with own.start(str(client), "scarce", stdin=subprocess.PIPE, **told) as program:
            try:
                assert program.stdout.read(1) == "."
                before = held(own)
                program.stdin.write("\n")
                program.stdin.flush()
                assert program.stdout.read(1) == "."
                for _ in range(1000):  # an end is seen before who asks later is answered, or soon
                    after = held(own)
                    if after == before:
                        break
                assert after == before
                said, _ = program.communicate(timeout=LIMIT_S)
            finally:
                program.kill()
    finally:
        own.end()
    assert program.returncode == 0, said


def test_who_finds_no_room_at_an_adapter_is_told_so(libibverbs, client):
    own = World(libibverbs, "*")
    with contextlib.ExitStack() as all_of_them:
        all_of_them.callback(own.end)
        program = all_of_them.enter_context(own.start(str(client), "crowded", stdin=subprocess.PIPE))
        all_of_them.callback(program.kill)
        assert program.stdout.read(1) == "."
        for _ in range(MAX_APPLICATIONS):
            all_of_them.enter_context(connect_to(own.socket, "softhca0"))
        said, _ = program.communicate(timeout=LIMIT_S)  # which ends its input
    assert program.returncode == 0, said


@pytest.mark.parametrize("served", [True, False])
def test_who_is_bound_is_attached(libibverbs, cm_client, served):
    """A server that tells its port number before it listens (qperf 0.4.11) has little to do between these;
    to be bound takes no adapter.
    """
    own = World(libibverbs, "*")
    del own.environment["SOFTHCA_DEBUG"]
    if not served:
        own.environment["SOFTHCA_DEVICES"] = "softhca0=unix:@softhca-nobody-listens"
    try:
        with own.start(str(cm_client), "bound", stdin=subprocess.PIPE) as program:
            try:
                assert program.stdout.read(1) == "."
                assert resources(own.socket)["hosts"] == served
                said, _ = program.communicate(timeout=LIMIT_S)
            finally:
                program.kill()
    finally:
        own.end()
    assert program.returncode == 0, said


def test_who_waits_for_events_before_a_close_waits_on(libibverbs, cm_client):
    """As with the kernel's device, though another thread's command is under way at the adapter."""
    own = World(libibverbs, "*")
    try:
        with own.start(str(cm_client), "closing", stdin=subprocess.PIPE) as program:
            try:
                assert program.stdout.read(1) == "."
                own.adapter.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, own.adapter.pid, os.WSTOPPED)
                program.stdin.write(".")
                program.stdin.flush()
                assert program.stdout.read(1) == "."
                own.adapter.send_signal(signal.SIGCONT)
                said, _ = program.communicate(timeout=LIMIT_S)
            finally:
                own.adapter.send_signal(signal.SIGCONT)
                program.kill()
    finally:
        own.end()
    assert program.returncode == 0, said


def test_a_killed_program_leaves_no_connection(world, cm_client):
    kill(cm_client, world.environment, 4, random.Random(1))
    before = left(world.socket, world.adapter.pid)
    kill(cm_client, world.environment, 24, random.Random(2))
    assert left(world.socket, world.adapter.pid, before) == before
    assert world.run(str(cm_client), "connections").returncode == 0


def test_the_commands_are_the_kernels(tmp_path):
    command = build.compiler()
    if command is None or not KERNEL_HEADER.exists():
        pytest.skip("needs a C compiler and the kernel's header (Debian's linux-libc-dev), to compare with")
    text = (build.SOURCES / "preload" / "ucma.h").read_text()
    sizes = dict(re.findall(r"UCMA_SIZED\((\w+), (\d+)\);", text))
    theirs = {
        "header": "cmd_hdr", "create_id": "", "query": "query", "bind_ip": "", "bind": "", "resolve_ip": "",
        "resolve_addr": "", "number": "listen", "route": "query_route_resp", "addresses": "query_addr_resp",
        "conn_param": "", "ud_param": "", "connect": "", "accept": "", "reject": "", "join_ip_mcast": "",
        "join_mcast": "", "event": "event_resp", "set_option": "", "migrate_id": "",
    }  # fmt: skip
    named = {f"ucma_{ours}": f"struct rdma_ucm_{name or ours}" for ours, name in theirs.items()}
    named |= {"ucma_path": "struct ib_user_path_rec", "ucma_ah_attr": "struct ib_uverbs_ah_attr",
              "ucma_qp_attr": "struct ib_uverbs_qp_attr"}  # fmt: skip
    assert set(named) == set(sizes)
    source = tmp_path / "sizes.c"
    lines = [f'_Static_assert(sizeof({name}) == {sizes[ours]}, "{ours}");' for ours, name in named.items()]
    numbers = re.findall(r"UCMA_\w+", text.partition("enum ucma_command {")[2].partition("UCMA_COMMANDS")[0])
    lines += [
        f'_Static_assert(RDMA_USER_CM_CMD_{name.removeprefix("UCMA_")} == {number}, "{name}");'
        for number, name in enumerate(numbers[:KERNEL_COMMANDS])
    ]
    assert len(numbers) == KERNEL_COMMANDS + 2
    source.write_text("\n".join([f'#include "{KERNEL_HEADER}"', *lines, ""]))
    subprocess.run([*command, "-c", str(source), "-o", str(tmp_path / "sizes.o")], check=True)


def test_states_are_those_of_python():
    text = build.states_header()
    names = {name: int(value) for each in re.findall(r"enum \{ (.*) \};", text)
             for value, name in enumerate(each.split(", "))}  # fmt: skip
    rows = [list(map(int, row.split(", "))) for row in re.findall(r"^    \{(.*)\},$", text, re.MULTILINE)]
    assert len(rows) == len(states.STATES) == 14
    for state, row in enumerate(rows):
        assert names[f"CM_{states.STATES[state]}"] == state
        assert {at: after for at, after in enumerate(row) if after >= 0} == states.TRANSITIONS[state]
    assert names["CM_BIND"] == states.BIND
    assert names["CM_GONE"] == states.GONE
