"""A link that holds packets back: who drives the engine asks for its deadline and has it send what is due."""

import select

import pytest
from runtime_quiet import HoldingLink, QuietEngine

from machine_speed import limit_s
from softhca.links.faulty import FaultyLink
from softhca.links.link import Link
from softhca.runtime import server
from softhca.runtime.assembly import assemble
from softhca.runtime.clock import now_ns
from softhca.runtime.loop import NEVER, EngineLoop
from softhca.runtime.progress_thread import Progress
from softhca.runtime.server import AdapterServer
from softhca.runtime.specification import DeviceSpecificationError, parse_one

BOUND_S = limit_s(20)


class PlainLink(Link):
    def receive(self, arrival):
        return False

    def send(self, burst):
        return 1


@pytest.fixture
def link():
    made = HoldingLink()
    yield made
    made.close()


def test_the_earlier_deadline_counts_that_of_the_engine_or_that_of_the_link(link):
    loop = EngineLoop(QuietEngine(), (link,), lambda: None)
    assert loop.deadline() == NEVER
    link.due_ns = 50
    assert loop.deadline() == 50
    loop.adapter.deadline_ns = 40
    assert loop.deadline() == 40
    link.due_ns = NEVER
    assert loop.deadline() == 40


def test_a_link_that_holds_nothing_back_has_no_deadline():
    loop = EngineLoop(QuietEngine(), (PlainLink(),), lambda: None)
    assert loop.deadline() == NEVER
    assert loop.progress(5) is False
    assert not loop.soon(5)


def test_a_round_lets_the_link_send_what_is_due_and_counts_it_as_work(link):
    loop = EngineLoop(QuietEngine(), (link,), lambda: None)
    link.due_ns = 50
    assert loop.progress(49) is False
    assert loop.progress(50) is True
    assert link.expired == [49, 50]


def test_what_is_due_within_the_grain_of_a_sleep_is_soon(link):
    loop = EngineLoop(QuietEngine(), (link,), lambda: None)
    link.due_ns = 5_000_000
    assert not loop.soon(4_000_000)
    assert loop.soon(4_000_001)
    assert loop.soon(6_000_000)


def test_a_deadline_of_the_link_that_a_kick_leaves_behind_wakes_a_sleeper(link):
    woken = []
    loop = EngineLoop(QuietEngine(), (link,), lambda: woken.append(True), clock=lambda: 1)
    loop.kick()
    assert woken == []
    link.due_ns = 50
    loop.kick()
    assert woken == [True]


def test_a_sleeping_background_thread_wakes_up_for_the_link(link):
    progress = Progress([link.fd])
    loop = EngineLoop(QuietEngine(), (link,), progress.wake)
    link.due_ns = now_ns() + 20_000_000
    progress.start(loop, "background")
    try:
        assert link.sent.wait(BOUND_S)
    finally:
        with loop.lock:
            loop.dead = True
        progress.close()


def test_nobody_goes_to_sleep_when_the_link_has_something_soon(link):
    progress = Progress([link.fd])
    moments = iter(range(1_000_000, 10**12, 150_000))  # two a round, before and behind a yield
    loop = EngineLoop(QuietEngine(), (link,), progress.wake, clock=lambda: next(moments))
    link.due_ns = 1_950_000
    assert not progress._drive(loop, lambda: False, leading=True)
    assert link.expired == [
        1_000_000, 1_300_000, 1_600_000, 1_900_000, 2_200_000,
        2_350_000,  # there was work behind a yield, so that it was no competitor's: not asleep at once
        2_650_000,
    ]  # fmt: skip
    assert link.sent.is_set()
    link.due_ns = 10**15
    before = len(link.expired)
    progress._drive(loop, lambda: False, leading=True)
    assert len(link.expired) - before == 1
    progress.forget()


def test_an_adapter_process_sleeps_until_the_links_deadline_and_not_when_it_is_soon(monkeypatch):
    link = HoldingLink()
    moments = iter(range(1_000_000, 10**12, 300_000))
    monkeypatch.setattr(server, "now_ns", lambda: next(moments))
    served = AdapterServer(QuietEngine(), (link,), stay=True)
    slept = []

    def attend(timeout_s):
        if timeout_s != 0:
            slept.append(timeout_s)
            served._stopping = True

    served._serve_descriptors = attend
    link.due_ns = 2_000_000
    expire = link.expire

    def expire_and_hold_the_next_one(now):
        worked = expire(now)
        if worked:
            link.due_ns = now + 5_000_000
        return worked

    link.expire = expire_and_hold_the_next_one
    served.serve()
    assert link.sent.is_set()
    assert len(slept) == 1
    assert 0.001 < slept[0] < 0.005


def test_an_adapter_process_that_keeps_others_from_running_sleeps_all_the_same(monkeypatch):
    link = HoldingLink(1_100_000)
    monkeypatch.setattr(server, "now_ns", lambda: 1_000_000)
    served = AdapterServer(QuietEngine(), (link,), stay=True)
    served.back_off.contended_until_ns = 2_000_000
    slept = []

    def attend(timeout_s):
        slept.append(timeout_s)
        served._stopping = True

    served._serve_descriptors = attend
    served.serve()
    assert slept == [0.0001]


def test_a_device_has_the_faults_of_the_environment_and_shows_what_they_did(loopback_address, monkeypatch):
    monkeypatch.setenv("SOFTHCA_FAULTS", "loss=1%")
    adapter, link = assemble(parse_one(f"a=udp:{loopback_address()}"))
    with link._link:
        assert isinstance(link, FaultyLink)
        link.fault_counters.count("lost", 3)
        assert adapter.port_counters()["faults_lost"] == 3
        epoll = select.epoll()
        epoll.register(link.fileno(), select.EPOLLIN)
        epoll.close()


def test_a_device_without_faults_shows_none(loopback_address, monkeypatch):
    monkeypatch.delenv("SOFTHCA_FAULTS", raising=False)
    adapter, link = assemble(parse_one(f"a=udp:{loopback_address()}"))
    link.close()
    assert not isinstance(link, FaultyLink)
    assert not any(name.startswith("faults") for name in adapter.port_counters())


def test_faults_act_above_the_capture(loopback_address, monkeypatch, tmp_path):
    monkeypatch.setenv("SOFTHCA_FAULTS", "loss=1%")
    monkeypatch.setenv("SOFTHCA_CAPTURE", str(tmp_path))
    _, link = assemble(parse_one(f"a=udp:{loopback_address()}"))
    link.close()
    assert type(link._link).__name__ == "TapLink"


def test_wrong_faults_are_an_error_of_the_environment(loopback_address, monkeypatch):
    monkeypatch.setenv("SOFTHCA_FAULTS", "los=1%")
    address = loopback_address()
    with pytest.raises(DeviceSpecificationError, match="SOFTHCA_FAULTS: unknown fault 'los': expected one "):
        assemble(parse_one(f"a=udp:{address}"))
    monkeypatch.setenv("SOFTHCA_FAULTS", "")
    _, link = assemble(parse_one(f"a=udp:{address}"))  # the address is free again
    link.close()
