"""An IPv4 and an IPv6 entry of one port: connections, datagrams, RDMA CM and groups by both at a time."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from machine_speed import limit_s
from network_namespace import PAIR, Namespace
from softhca.runtime import same_host_limits

LEFT, RIGHT = ("10.99.0.2", "fd99::2"), ("10.99.0.3", "fd99::3")
ADDRESSES = "".join(
    f" && ip address add {v4}/24 dev here && ip address add {v6}/64 dev here nodad"
    for v4, v6 in (LEFT, RIGHT)
)
CASES = {"embedded": ("embedded", ""), "process": ("process", ""), "captured": ("embedded", "capture.pcapng")}


@pytest.fixture(scope="module", params=CASES)
def found(request, tmp_path_factory):
    """What the program found, and the capture that it left, if any."""
    mode, capture = CASES[request.param]
    program = Path(__file__).with_name("two_versions_program.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    place = tmp_path_factory.mktemp("two-versions") / capture if capture else None
    if place is not None:
        environment["SOFTHCA_CAPTURE"] = str(place)
    with Namespace(PAIR + ADDRESSES) as namespace:
        done = subprocess.run(
            [*namespace.prefix, sys.executable, str(program), mode, *LEFT, *RIGHT],
            capture_output=True, text=True, timeout=limit_s(60), env=environment,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), place


def test_connections_of_both_versions_carry_all_at_once(found):
    assert found[0]["at once"] == [40, 40]


def test_datagrams_of_both_versions_are_answered_where_they_came_from(found):
    assert found[0]["datagrams"] == [[LEFT[0], RIGHT[0]], [RIGHT[0], LEFT[0]], [LEFT[1], RIGHT[1]],
                                     [RIGHT[1], LEFT[1]]]  # fmt: skip


def test_an_entry_leads_to_no_address_of_the_other_version(found):
    assert found[0]["other version"] == ["EINVAL"] * 2


def test_rdma_cm_connects_addresses_of_both_versions(found):
    assert found[0]["cm"] == [12, "resolved"] * 2


def test_groups_of_both_versions_are_heard(found):
    assert found[0]["groups"] == [[LEFT[0], "239.88.77.67"], [LEFT[1], "ff1e::17"]]


@pytest.mark.parametrize(("found", "expected"), [("embedded", True), ("captured", False)], indirect=["found"])
def test_adapters_of_one_host_share_memory_by_both_versions(found, expected):
    """But for those whose packets are to be seen."""
    if same_host_limits.unsupported():
        pytest.skip("no same-host paths here")
    assert found[0]["in memory"] == [expected] * 2


@pytest.mark.parametrize("found", ["captured"], indirect=True)
def test_tshark_reads_both_versions_of_a_capture(found):
    """Nothing is malformed; each version has its connection's SENDs, its datagrams, and CM's messages."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed (Debian package tshark)")
    fields = [f"-e{each}" for each in ("ip.version", "infiniband.bth.opcode", "infiniband.bth.destqp")]
    words = ["tshark", "-r", str(found[1]), "-Tfields", *fields, "-e_ws.malformed"]
    words += ["--disable-protocol", "rpcordma"]  # guesses at what the payload might be
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in said.splitlines()]
    assert {row[3] for row in rows} == {""}
    kinds = Counter((row[0], int(row[1])) for row in rows)
    for version in ("4", "6"):
        assert kinds[version, 0] >= 40  # SEND FIRST
        assert kinds[version, 17] >= 40  # ACKNOWLEDGE
        assert kinds[version, 100] >= 4  # SEND ONLY of UD
