"""Programs in C that mean no good to their adapter process, or are killed, beside their neighbours."""

import random
import re
import subprocess
from pathlib import Path

import pytest
from kills import left
from native_world import LIMIT_S, await_listener, compiled_client, needs

from softhca.queues.header import header

HOW = ["commands", "unread", "messages", "wakes", "doorbells", "torn"]
MOST_GROWTH_KB = 48_000
"""What an adapter process may need more while it is flooded: a neighbour's rings and regions among it."""


@pytest.fixture(scope="module")
def clients(libibverbs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "softhca.h").write_text(header())
    return [str(compiled_client(libibverbs, folder, name, [f"-I{folder}"]))
            for name in ("hostile_client", "verbs_client")]


def memory_kb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])


@pytest.mark.parametrize("how", HOW)
def test_a_flood_is_its_programs_own_loss(world, clients, how):
    hostile, neighbour = clients
    assert world.run(neighbour, "resets").returncode == 0
    before, held_kb = left(world.socket, world.adapter.pid), memory_kb(world.adapter.pid)
    with subprocess.Popen([hostile, how], stdout=subprocess.PIPE, env=world.environment) as program:
        try:
            assert program.stdout.read(1) == b"."
            for case in ("resets", "events", "extended"):
                done = world.run(neighbour, case)
                assert done.returncode == 0, done.stderr
            assert memory_kb(world.adapter.pid) - held_kb < MOST_GROWTH_KB
            assert program.poll() is None
        finally:
            program.kill()
    assert left(world.socket, world.adapter.pid, before) == before


def test_the_peer_of_a_killed_program_is_told(world, unused_port):
    """Who always has requests under way: who waits for a message alone may wait, as on every fabric."""
    needs("ib_write_bw")
    dice = random.Random(3)
    command = ("ib_write_bw", "-F", "-n", "100000000", "-s", "4096", "-p", str(unused_port))
    for _ in range(3):
        with world.start(*command) as server:
            try:
                await_listener(unused_port, server)
                with world.start(*command, "127.0.0.1") as client:
                    try:
                        for _ in range(dice.randrange(1, 12)):
                            world.run("ibv_devices")
                        server.kill()
                        said, _ = client.communicate(timeout=LIMIT_S)
                    finally:
                        client.kill()
            finally:
                server.kill()
        assert client.returncode not in (0, -9)
        assert re.search(r"Failed status \d+|Couldn't read|Failed to exchange|Unable to", said), said
