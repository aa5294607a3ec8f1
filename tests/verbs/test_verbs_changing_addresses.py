"""An interface that loses an address of a port and gets it back: only what leaves from that address minds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from machine_speed import limit_s
from network_namespace import PAIR, Namespace

LEFT, RIGHT = ("10.99.0.2", "fd99::2"), ("10.99.0.3", "fd99::3")
PREFIX_BITS = (32, 128)
"""With prefixes of their own: an address of a network goes with the first one of that network."""
RETRIES_EXCEEDED = 12


def words_of(change, address, index):
    at_once = ["nodad"] if index and change == "add" else []
    return ["address", change, f"{address}/{PREFIX_BITS[index]}", "dev", "here", *at_once]


class Program:
    """The program, which runs in ``namespace``."""

    def __init__(self, namespace, mode):
        program = Path(__file__).with_name("changing_addresses_program.py")
        self.process = subprocess.Popen(
            [*namespace.prefix, sys.executable, str(program), mode, *LEFT, *RIGHT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        assert self.process.stdout.readline() == "ready\n"

    def do(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ends(self):
        """Whether it ends by itself, and well."""
        self.process.communicate(timeout=limit_s(60))
        return self.process.returncode == 0


@pytest.fixture(scope="module")
def namespace():
    with Namespace(PAIR) as made:
        for own in (LEFT, RIGHT):
            for index, address in enumerate(own):
                made.ip(*words_of("add", address, index))
        yield made


@pytest.fixture(params=["embedded", "process"])
def program(request, namespace):
    made = Program(namespace, request.param)
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.mark.parametrize("index", [0, 1])
def test_an_address_that_goes_takes_its_own_connections_alone(namespace, program, index):
    other = 1 - index
    for each in (0, 1):
        program.do("connect", each)
        assert program.do("send", each) == [0, "hello"]
    namespace.ip(*words_of("del", RIGHT[index], index))
    try:
        assert program.do("send", other) == [0, "hello"]
        assert program.do("send", index) == [RETRIES_EXCEEDED, "empty"]
        assert program.do("send", other) == [0, "hello"]
    finally:
        namespace.ip(*words_of("add", RIGHT[index], index))
    assert program.do("send", other) == [0, "hello"]
    program.do("connect", index)
    assert program.do("send", index) == [0, "hello"]
    assert program.ends()


@pytest.mark.parametrize("index", [0, 1])
def test_who_has_lost_its_own_address_fails_and_recovers(namespace, program, index):
    """Of IPv6 the kernel still sends from it, so that the message may arrive, but no acknowledgement."""
    for each in (0, 1):
        program.do("connect", each)
    namespace.ip(*words_of("del", LEFT[index], index))
    try:
        assert program.do("send", index)[0] == RETRIES_EXCEEDED
        assert program.do("send", 1 - index) == [0, "hello"]
    finally:
        namespace.ip(*words_of("add", LEFT[index], index))
    program.do("connect", index)
    assert program.do("send", index) == [0, "hello"]
    assert program.ends()
