"""What the distribution's programs do not try: ``verbs_client.c``, as it is and with sanitizers; kills."""

import random
import subprocess

import pytest
from kills import kill, left
from native_world import compiled_client, needs, preload, sanitizers

from softhca.native import build

CASES = ["extended", "threads", "forks", "events", "resets", "unmapped", "refusals"]


@pytest.fixture(scope="module")
def client(libibverbs, tmp_path_factory):
    return compiled_client(libibverbs, tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """The library with sanitizers, and what a program is told that it is given to."""
    objects = sanitizers()
    path = tmp_path_factory.mktemp("sanitized") / "libibverbs.so.1"
    build.build(path, ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O1"))
    return {"LD_PRELOAD": " ".join([*objects, preload(path)]), "ASAN_OPTIONS": "detect_leaks=0"}


@pytest.mark.parametrize("case", CASES)
def test_a_case(world, client, case):
    done = world.run(str(client), case)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("case", CASES)
def test_a_case_with_sanitizers(world, client, case, sanitized):
    done = world.run(str(client), case, **sanitized)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


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
