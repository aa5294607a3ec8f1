"""What Debian's programs call of the library, as a copy of it records that."""

import os
import subprocess
from collections import Counter

import pytest
from native_world import needs
from recording import Recorder

from softhca.native import build

MOVING = ("poll_cq", "post_", "req_notify_cq", "ibv_get_cq_event", "ibv_ack_cq_events")
"""Verbs whose number depends on how soon messages come."""
STATE, INIT, RTR, RTS = 1, 1, 2, 3
LOCAL_WRITE = 1
RC_MASKS = {INIT: 0x39, RTR: 0x129181, RTS: 0x12E01}
"""What who modifies an RC queue pair to a state has to say (IBTA vol. 1, 11.2.5.2), and no more, as
`ibv_modify_qp` has it.
"""
ENDS = {
    "ibv_destroy_qp": ["ibv_create_qp"], "ibv_destroy_cq": ["ibv_create_cq", "create_cq_ex"],
    "ibv_dereg_mr": ["ibv_reg_mr_iova2"], "ibv_destroy_srq": ["ibv_create_srq"],
    "ibv_destroy_ah": ["ibv_create_ah"], "ibv_dealloc_pd": ["ibv_alloc_pd"],
    "ibv_close_device": ["ibv_open_device"],
}  # fmt: skip
PYTHON = "/usr/bin/python3"
"""Whose pyverbs is Debian's."""
PYVERBS = """
from pyverbs import enums
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

with Context(name="softhca0") as context, PD(context) as pd, CQ(context, 7) as cq:
    with MR(pd, 5000, enums.IBV_ACCESS_LOCAL_WRITE):
        kind = QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=9, max_recv_wr=11))
        with QP(pd, kind, QPAttr()):
            assert cq.poll() == (0, [])
"""


@pytest.fixture(scope="module")
def recorder(tmp_path_factory):
    try:
        return Recorder(tmp_path_factory.mktemp("recorder"))
    except OSError as why:
        pytest.skip(str(why))


@pytest.fixture
def record(world, recorder):
    """Runs a program and gives its calls, or a client of a server that is not recorded."""

    def run(*command, port=0):
        recorder.clear()
        if port:
            world.pair(port, *command, **recorder.environment)
        else:
            assert world.run(*command, **recorder.environment).returncode == 0
        return list(recorder.calls())

    return run


def test_devinfo_opens_each_device_once(record):
    needs("ibv_devinfo")
    names = [call.name for call in record("ibv_devinfo")]
    assert names[0] == "ibv_get_device_list"
    assert names[-2:] == ["ibv_close_device", "ibv_free_device_list"]
    assert Counter(names)["ibv_open_device"] == 1


def test_a_pingpong_with_events_and_what_it_asks_for(record, unused_port):
    needs("ibv_rc_pingpong")
    calls = record("ibv_rc_pingpong", "-e", "-g", "0", "-n", "20", "-r", "40", "-s", "5000", port=unused_port)
    count = Counter(call.name for call in calls)
    assert {name: count[name] for name in ("post_send", "ibv_create_cq", "ibv_create_qp", "ibv_reg_mr")} == {
        "post_send": 20, "ibv_create_cq": 1, "ibv_create_qp": 1, "ibv_reg_mr": 1}  # fmt: skip
    assert count["post_recv"] >= 40
    assert count["ibv_get_cq_event"] >= 1
    by_name = {call.name: call.arguments for call in calls}
    assert by_name["ibv_create_cq"][1] == 40 + 1
    assert by_name["ibv_reg_mr"][2:4] == (5000, LOCAL_WRITE)
    assert [call.arguments[2] & STATE for call in calls if call.name == "ibv_modify_qp"] == [STATE] * 3
    assert count["ibv_destroy_qp"] == count["ibv_dereg_mr"] == count["ibv_dealloc_pd"] == 1


def test_a_program_asks_for_the_same_each_time(record, unused_port):
    needs("ib_write_bw")
    command = ("ib_write_bw", "-d", "softhca0", "-F", "-n", "50", "-s", "4096")
    first, second = (
        [call.name for call in record(*command, port=unused_port) if not call.name.startswith(MOVING)]
        for _ in range(2)
    )
    assert first == second
    assert {"ibv_open_device", "ibv_alloc_pd", "ibv_modify_qp", "ibv_destroy_qp"} <= set(first)


def test_ucx_connects_by_rc_and_gives_all_back(record, unused_port):
    needs("ucx_perftest")
    words = ("env", "UCX_TLS=rc,self", "UCX_NET_DEVICES=softhca0:1", "UCX_LOG_LEVEL=error", "ucx_perftest")
    calls = record(*words, "-t", "tag_lat", "-n", "50", "-w", "5", "-s", "3000", port=unused_port)
    count = Counter(call.name for call in calls)
    for end, begins in ENDS.items():
        assert count[end] == sum(count[begin] for begin in begins) > 0, end
    assert count["post_send"] >= 50 + 5
    assert count["post_srq_recv"] > 0
    masks = [call.arguments[2] for call in calls if call.name == "ibv_modify_qp"]
    at = masks.index(RC_MASKS[RTR])
    assert masks[at - 1 : at + 2] == list(RC_MASKS.values())
    assert masks.count(RC_MASKS[RTS]) == 1


def test_pyverbs_calls_what_its_objects_are(record):
    if not os.access(PYTHON, os.X_OK):
        pytest.skip(f"{PYTHON} is not installed (Debian's python3)")
    asked = subprocess.run([PYTHON, "-I", "-c", "import pyverbs.device"], capture_output=True)
    if asked.returncode:
        pytest.skip(f"{PYTHON} has no pyverbs (Debian's python3-pyverbs)")
    calls = record(PYTHON, "-I", "-c", PYVERBS)
    assert [call.name for call in calls] == [
        "ibv_get_device_list", "ibv_open_device", "ibv_free_device_list", "ibv_alloc_pd",
        "ibv_create_cq", "ibv_reg_mr_iova2", "ibv_create_qp", "ibv_modify_qp", "poll_cq", "ibv_destroy_qp",
        "ibv_dereg_mr", "ibv_destroy_cq", "ibv_dealloc_pd", "ibv_close_device",
    ]  # fmt: skip
    by_name = {call.name: call.arguments for call in calls}
    assert by_name["ibv_create_cq"][1] == 7
    assert by_name["ibv_reg_mr_iova2"][2] == 5000
    assert by_name["ibv_reg_mr_iova2"][4] == LOCAL_WRITE
    assert by_name["ibv_modify_qp"][2] == RC_MASKS[INIT]


def test_words_of_a_call_are_those_that_the_program_gave(record, libibverbs, tmp_path):
    source = tmp_path / "gives.c"
    source.write_text(
        "struct ibv_device; struct ibv_device **ibv_get_device_list(int *); int ibv_rate_to_mult(int);\n"
        "int main(void) { return ibv_rate_to_mult(0x1234) != -1; }\n"
    )
    program = str(tmp_path / "gives")
    subprocess.run([*build.compiler(), str(source), "-o", program, str(libibverbs)], check=True)
    (call,) = record(program)
    assert (call.name, call.arguments[0]) == ("ibv_rate_to_mult", 0x1234)
