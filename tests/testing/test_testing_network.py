"""Networks of adapters in virtual time: faults, hooks, observers, and that a seed decides everything."""

import pytest

from softhca.driver import services
from softhca.links.faults import Faults
from softhca.testing import LOST, RECEIVED, SENT, Network, NotAtRest
from softhca.testing import network as network_module
from softhca.testing.addressing import gid
from softhca.testing.ends import QKEY, RC, READ, SEND, UC, UD, WRITE, End, connect, pair, post

LINKS = ("ipv4", "ipv6", "native")
STORM = "loss=10%,duplicate=5%,reorder=10%,corrupt=3%,truncate=2%,jitter=3us"


def trace(network):
    """Everything that is seen, in a form that can be compared."""
    seen = []

    def number(node):
        return node and node.number

    network.observers.append(
        lambda d: seen.append((d.event, d.time_ns, number(d.source), number(d.target), d.data, d.what))
    )
    return seen


def writes(network, kind=RC, size=5000, **options):
    """Two ends on a network; the left one's eight WRITEs and what became of them."""
    _, left, left_qp, right, _ = pair(kind, network, **options)
    left.memory[:size] = bytes(i % 251 for i in range(size))
    for index in range(8):
        post(left_qp, WRITE, [left.sge(0, size)], wr_id=index, va=right.va, rkey=right.key.rkey)
    return left, right, [done.status for done in left.poll(8)]


@pytest.mark.parametrize("join_bursts", [False, True])
@pytest.mark.parametrize("link", LINKS)
def test_every_link_carries_messages_through_a_storm(link, join_bursts):
    with Network(STORM, seed=3, link=link, join_bursts=join_bursts) as network:
        lost = network.record(LOST)
        left, right, statuses = writes(network)
        assert statuses == [0] * 8
        assert right.memory[:5000] == left.memory[:5000]
        assert {"loss"} == {datagram.what for datagram in lost}


def test_the_same_seed_gives_the_same_packets_and_another_one_others():
    traces = []
    for seed in (5, 5, 6):
        with Network(STORM, seed=seed) as network:
            traces.append(trace(network))
            assert writes(network)[2] == [0] * 8
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]
    assert {row[0] for row in traces[0]} == {SENT, LOST, RECEIVED}


@pytest.mark.parametrize(
    ("faults", "what"),
    [
        ("duplicate=50%", "duplicated"), ("reorder=50%", "reordered"), ("corrupt=30%", "corrupted"),
        ("truncate=30%", "truncated"), ("loss=30%", "loss"), ("burst=10%,burst_length=2", "burst"),
        ("flap=100us/80us", "flap"), ("partition=1>2@0ns..1050us", "partition"),
    ],
)  # fmt: skip
def test_each_fault_befalls_packets_and_nothing_else_does(faults, what):
    with Network(faults, seed=1) as network:
        seen = network.record(LOST, RECEIVED)
        assert writes(network, timeout=4)[2] == [0] * 8
        befallen = {datagram.what for datagram in seen}
        assert befallen == {"passed", what}


def test_delay_and_bandwidth_decide_when_packets_arrive():
    with Network("delay=7us,bandwidth=1MB/s") as network:
        seen = network.record()
        _, left, left_qp, right, _ = pair(UC, network)
        start = network.now
        post(left_qp, WRITE, [left.sge(0, 2000)], va=right.va, rkey=right.key.rkey)
        network.run()
        lengths = [len(d.data) for d in seen if d.event == SENT]
        arrivals = [d.time_ns - start for d in seen if d.event == RECEIVED]
        assert arrivals == [7000 + 1000 * sum(lengths[: i + 1]) for i in range(len(lengths))]


def test_decisions_in_place_of_dice():
    with Network("loss=100%", decisions="1>2#2:lost,2>1#1:duplicated+500ns") as network:
        seen = network.record(LOST, RECEIVED)
        assert writes(network, size=100)[2] == [0] * 8
        (lost,) = [d for d in seen if d.event == LOST]
        assert (lost.source.number, lost.target.number) == (1, 2)
        assert [d.source.number for d in seen if d.what == "duplicated"] == [2]


def test_one_direction_can_be_cut_and_mended():
    network, left, left_qp, right, _ = pair(RC)
    network.impair("loss=100%", right.node, left.node)
    seen = network.record()
    post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    network.run(limit_ns=1_000_000)
    assert {(d.event, d.source.number) for d in seen} == {(SENT, 1), (RECEIVED, 1), (SENT, 2), (LOST, 2)}
    network.impair("")
    assert [done.status for done in left.poll(1)] == [0]
    with pytest.raises(ValueError, match="a source and a target"):
        network.impair("", left.node)
    network.close()


def test_a_hook_changes_or_swallows_what_is_sent():
    network, left, left_qp, right, _ = pair(UC)
    lost = network.record(LOST)
    words = iter([None, b"x"])

    def tamper(sent):
        assert (sent.event, sent.source, sent.opcode, sent.payload_bytes) == (
            SENT, left.node, "UC_RDMA_WRITE_ONLY", 8,
        )  # fmt: skip
        word = next(words, sent.data)
        return word and sent.data[:-1] + word

    network.tamper = tamper
    for _ in range(3):
        post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    network.run()
    assert [datagram.what for datagram in lost] == ["tampered"]
    assert right.node.adapter.port_counters()["drops_icrc"] == 1
    network.close()


@pytest.mark.parametrize("link", LINKS)
def test_what_was_sent_can_be_injected_again(link):
    with Network(link=link) as network:
        _, left, left_qp, right, _ = pair(UC, network)
        sent = network.record(SENT)
        seen = network.record(RECEIVED)
        post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
        network.run()
        before = right.node.adapter.port_counters()
        network.inject(right.node, sent[0].data, left.node.gid, source_port=sent[0].route.source_port)
        after = right.node.adapter.port_counters()
        assert after["transport_out_of_sequence"] == before["transport_out_of_sequence"] + 1
        assert (seen[-1].what, seen[-1].source, seen[-1].packet) == ("injected", None, None)


@pytest.mark.parametrize("link", LINKS)
def test_what_goes_to_a_group_comes_to_every_other_adapter(link):
    group = bytes.fromhex("ff0e") + bytes(13) + b"\5" if link != "ipv4" else (
        bytes(10) + b"\xff\xff\xe9\xfc\0\1")  # fmt: skip
    with Network(link=link) as network:
        ends = [End(network.add()) for _ in range(3)]
        queues = [end.qp(UD) for end in ends]
        for end, qp in zip(ends, queues, strict=True):
            services.start_datagrams(qp, QKEY)
            end.device.attach_mcast(qp.number, group, 0xC001)
            qp.post_recv(1, [end.sge(0, 100)])
        vector = services.Path(group, dlid=0xC001 if link == "native" else 0).vector()
        ah = ends[0].device.create_ah(ends[0].pd, vector)
        received = network.record(RECEIVED)
        post(queues[0], SEND, [ends[0].sge(200, 8)], ah=ah, qpn=0xFFFFFF, qkey=QKEY)
        network.run()
        assert [d.target.number for d in received] == [2, 3]
        assert [len(end.cq.poll(9)) for end in ends] == [1, 1, 1]


def test_a_packet_to_nobody_is_lost():
    network, left, left_qp, right, _ = pair(UC)
    lost = network.record(LOST)
    del network.nodes[right.node.number]
    post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    network.run()
    assert [datagram.what for datagram in lost] == ["no receiver"]
    network.close()
    right.node.close()


@pytest.mark.parametrize("join", [False, True])
def test_packets_that_arrive_together_are_one_arrival_or_many(join):
    """The first packet is longer than the others, by its RETH: a burst of its own."""
    with Network(join_bursts=join) as network:
        _, left, left_qp, right, _ = pair(UC, network)
        post(left_qp, WRITE, [left.sge(0, 5000)], va=right.va, rkey=right.key.rkey)
        network.run()
        counters = right.node.adapter.port_counters()
        assert (counters["packets_received"], counters["bursts_received"]) == (5, 2 if join else 5)


def test_a_timer_that_is_armed_again_keeps_its_earlier_deadline():
    """The adapters' own timers: a packet that is sent later does not put off the time-out of an earlier."""
    with Network() as network:
        _, left, left_qp, right, _ = pair(RC, network, timeout=4)
        network.impair("loss=100%", left.node, right.node)
        post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
        network.step()
        deadline = left.node.adapter.next_deadline()
        network.elapse((deadline - network.now) // 2)
        post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
        network.step()
        assert left.node.adapter.next_deadline() == deadline


def test_time_goes_on_as_far_as_it_is_told():
    with Network() as network:
        moments = []
        start = network.now
        network.after(500, lambda: moments.append(network.now))
        network.after(300, lambda: moments.append(network.now))
        assert not network.run(limit_ns=400)
        assert (moments, network.now) == ([start + 300], start + 300)
        network.elapse(1000)
        assert (moments, network.now) == ([start + 300, start + 500], start + 1300)
        assert network.run(lambda: True)
        assert not network.advance()


def test_what_is_called_from_a_step_may_poll_and_post():
    """A poll from in there does nothing: the same packets go at the same moments as without it."""
    traces = []
    for polls in (False, True):
        network, left, left_qp, right, _ = pair(RC)
        other = End(left.node)
        other_qp, far_qp = other.qp(), right.qp()
        connect((other, other_qp), (right, far_qp))
        if polls:
            network.observers.append(lambda _, cq=other.cq: cq.poll(1))
        traces.append(trace(network))
        for qp, end in ((left_qp, left), (other_qp, other)):
            post(qp, WRITE, [end.sge(0, 5000)], va=right.va, rkey=right.key.rkey)
        target = right.va, right.key.rkey
        network.after(
            10, lambda qp=left_qp, end=left, to=target: post(qp, READ, [end.sge(0, 8)], va=to[0], rkey=to[1])
        )
        network.run()
        assert [done.status for done in left.cq.poll(3)] == [0, 0]
        network.close()
    assert traces[0] == traces[1]


def test_injected_bytes_have_the_destination_that_they_are_given():
    network, left, left_qp, right, _ = pair(UC)
    sent = network.record(SENT)
    post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    network.run()
    network.inject(right.node, sent[0].data, left.node.gid, destination=gid(99))
    assert right.node.adapter.port_counters()["drops_destination"] == 1
    network.close()


def test_a_network_that_never_rests_is_told_apart(monkeypatch):
    monkeypatch.setattr(network_module, "MAX_ROUNDS", 1000)
    monkeypatch.setattr(network_module, "MAX_IDLE_POLLS", 1000)
    with Network() as network:

        def again():
            network.after(1, again)

        again()
        with pytest.raises(NotAtRest, match="1000 rounds"):
            network.run()
    with Network(polls_pass_time=True) as network:
        end = End(network.add())
        for _ in range(999):
            assert end.cq.poll(1) == []
        with pytest.raises(NotAtRest, match="1000 polls"):
            [end.cq.poll(1) for _ in range(10)]


def test_what_is_under_way_is_bounded(monkeypatch):
    monkeypatch.setattr(network_module, "MAX_PACKETS_UNDER_WAY", 3)
    network, left, left_qp, right, _ = pair(UC)
    lost = network.record(LOST)
    post(left_qp, WRITE, [left.sge(0, 5000)], va=right.va, rkey=right.key.rkey)
    network.run()
    assert [datagram.what for datagram in lost] == ["no room", "no room"]
    post(left_qp, WRITE, [left.sge(0, 3000)], va=right.va, rkey=right.key.rkey)
    network.run()
    assert len(lost) == 2
    network.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Network("loss=200%"), lambda: Network("crash=1@1ms.."), lambda: Network(Faults(poll_ns=5)),
        lambda: Network(link="token ring"), lambda: Network(decisions="1>2"),
        lambda: Network().add(251), lambda: Network().add(-1), lambda: Network().add(active_mtu=9),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(make):
    with pytest.raises(ValueError, match=r"\w"):
        make()


def test_numbers_decide_addresses_and_are_taken_once():
    with Network(link="native") as network:
        node, other = network.add(7), network.add(lmc=2)
        assert (node.lid, other.number, other.lid) == (23, 8, 24 << 2)
        assert network.add(250).number == 250  # the last one
        with pytest.raises(ValueError, match="expected another number"):
            network.add(7)
    for link, name in (("ipv4", "0" * 20 + "ffffc0000207"), ("ipv6", "20010db8" + "0" * 22 + "07")):
        with Network(link=link) as network:
            assert network.add(7).gid.hex() == name


def test_ends_of_one_adapter_talk_without_a_link():
    with Network() as network:
        node = network.add()
        one, other = End(node), End(node)
        qps = one.qp(), other.qp()
        connect((one, qps[0]), (other, qps[1]))
        seen = network.record()
        post(qps[0], WRITE, [one.sge(0, 8)], va=other.va, rkey=other.key.rkey)
        assert [done.status for done in one.poll(1)] == [0]
        assert seen == []


def test_a_packet_that_was_cut_is_the_last_of_its_arrival():
    """What comes behind it would not stand where the stride says."""
    network, left, left_qp, right, _ = pair(UC, Network(join_bursts=True))
    numbers = iter(range(100))
    network.tamper = lambda sent: sent.data[:-4] if next(numbers) == 3 else sent.data  # second of its burst
    post(left_qp, WRITE, [left.sge(0, 6000)], va=right.va, rkey=right.key.rkey)
    network.run()
    counters = right.node.adapter.port_counters()
    assert (counters["packets_received"], counters["bursts_received"], counters["drops_icrc"]) == (5, 3, 1)
    network.close()


@pytest.mark.parametrize("join", [False, True])
def test_what_has_arrived_is_under_way_no_more(monkeypatch, join):
    monkeypatch.setattr(network_module, "MAX_PACKETS_UNDER_WAY", 5)
    network, left, left_qp, right, _ = pair(UC, Network(join_bursts=join))
    lost = network.record(LOST)
    for _ in range(4):
        post(left_qp, WRITE, [left.sge(0, 5000)], va=right.va, rkey=right.key.rkey)
        network.run()
    assert lost == []
    network.close()


def test_what_is_due_at_the_last_moment_is_done():
    with Network() as network:
        moments, start = [], network.now
        for delay_ns in (300, 301, 500):
            network.after(delay_ns, lambda: moments.append(network.now - start))
        network.run(limit_ns=300)
        assert moments == [300]
        network.elapse(200)
        assert (moments, network.now - start) == ([300, 301, 500], 500)


def test_polls_that_found_nothing_count_in_a_row(monkeypatch):
    monkeypatch.setattr(network_module, "MAX_IDLE_POLLS", 10)
    with Network(polls_pass_time=True) as network:
        for _ in range(5):
            for _ in range(10):
                assert not network.poll()
            network.after(1, lambda: None)
            assert network.poll()  # time goes on to what is planned
            assert network.poll()  # which is done
        with pytest.raises(NotAtRest, match="10 polls"):
            [network.poll() for _ in range(11)]


def test_other_faults_for_all_are_for_every_direction():
    network, left, left_qp, right, _ = pair(UC)
    network.impair("loss=100%", left.node, right.node)
    seen = network.record(LOST, RECEIVED)
    for faults in (None, "", "loss=100%"):
        if faults is not None:
            network.impair(faults)
        post(left_qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
        network.run()
    assert [datagram.event for datagram in seen] == [LOST, RECEIVED, LOST]
    network.close()


def test_programs_that_serve_see_the_time_that_has_passed():
    with Network() as network:
        start, seen = network.now, []

        def task():
            seen.append(network.now - start)
            return False

        network.tasks.append(task)
        network.elapse(1000)
        assert seen == [0, 1000]
