"""Progress is a contract: a target is served whatever its application does, and no peer gives up on it."""

import os
import signal

import pytest
import runtime_pair
from runtime_pair import End, RemoteOperation, take
from runtime_programs import Program

from softhca.driver import registry
from softhca.driver.services import Path, Reliability, connect
from softhca.runtime import devices

TIMEOUT = 14  # 67 ms
OPERATIONS = 60


@pytest.fixture
def client(loopback_address):
    devices.add(f"client=udp:{loopback_address()}?buffer=212992", "embedded")
    driver = registry.open_device("client")
    yield driver
    driver.close()
    devices.remove("client")


def start(client, address, mode, behaviour):
    """A target program, and an end here that is connected to it."""
    program = Program("target_program.py", f"target=udp:{address}?buffer=212992", mode, behaviour)
    target = program.hear()
    end = End(client, 4096)
    mtu = client.query_port(1)["active_mtu"]
    program.say(gid=client.query_gid(1, 0).hex(), qpn=end.qp.number, mtu=mtu)
    connect(end.qp, Path(bytes.fromhex(target["gid"]), mtu=mtu), target["qpn"], 1, 1,
            runtime_pair.REMOTE_EVERYTHING, Reliability(timeout=TIMEOUT, retry_cnt=7))
    assert program.hear() == {"ready": True}
    return program, end, target


def statuses_of(end, target, count):
    """Writes and reads in turn; the status of each."""
    statuses = []
    for number in range(count):
        operation = RemoteOperation.READ if number % 2 else RemoteOperation.WRITE
        end.qp.post_send(int(operation), 2, 0, number, target["address"], target["rkey"], 0, 0, 0, 0, 0,
                         end.element(4096), None)
        end.qp.ring()
        statuses += [completion.status for completion in take(end.cq, 1)]
    return statuses


@pytest.mark.parametrize("mode", ["embedded", "process"])
@pytest.mark.parametrize("behaviour", ["idle", "busy", "asleep"])
def test_every_target_is_served_in_time(client, loopback_address, behaviour, mode):
    program, end, target = start(client, loopback_address(), mode, behaviour)
    assert statuses_of(end, target, OPERATIONS) == [0] * OPERATIONS
    end.close()
    assert program.end() == 0


def test_an_adapter_process_serves_without_its_application(client, loopback_address):
    program, end, target = start(client, loopback_address(), "process", "busy")
    os.kill(program.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, program.pid, os.WSTOPPED)
    assert statuses_of(end, target, OPERATIONS) == [0] * OPERATIONS
    os.kill(program.pid, signal.SIGCONT)
    end.close()
    assert program.end() == 0


def test_a_target_that_is_stopped_for_good_is_given_up_within_the_configured_time(client, loopback_address):
    program, end, target = start(client, loopback_address(), "embedded", "idle")
    program.kill()
    retry_exceeded, flushed = 12, 5
    for number in range(3):
        end.qp.post_send(0, 2, 0, number, target["address"], target["rkey"], 0, 0, 0, 0, 0, [], None)
    end.qp.ring()
    arrived = []
    while len(arrived) < 3:
        end.cq.arm()
        arrived += end.cq.poll(3)
        if len(arrived) < 3:
            client.wait_completion(None, 0.05)
    assert [(wc.wr_id, wc.status) for wc in arrived] == [(0, retry_exceeded), (1, flushed), (2, flushed)]
    end.close()
    program.end()
