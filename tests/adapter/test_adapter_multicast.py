"""Multicast of datagrams (IBTA vol. 1, 10.5): copies for every queue pair of a group, on several adapters."""

import errno
from types import SimpleNamespace

import pytest
from native_network import NativeNetwork

from softhca.adapter.config import AdapterConfig
from softhca.adapter.multicast import MulticastGroups
from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.testing.addressing import gid
from softhca.testing.ends import QKEY, SEND, UD, End, post
from softhca.testing.network import Network
from softhca.transport.states import INIT
from softhca.wire.ip import Ipv4, Ipv6

V4_GROUP = gid(1)[:12] + b"\xe0\x01\x02\x03"
V6_GROUP = bytes.fromhex("ff0e0000000000000000000000000042")
NATIVE_GROUP = bytes.fromhex("ff12401bffff000000000000deadbeef")
MLID = 0xC007
ALL = 0xFFFFFF


class Subnet:
    """Three adapters of one kind; ``vector`` leads to the group."""

    def __init__(self, kind):
        self.kind = kind
        self.lid = 0
        if kind == "native":
            self.network, self.group, self.lid = NativeNetwork(), NATIVE_GROUP, MLID
        else:
            self.network = Network(link="ipv6" if kind == "v6" else "ipv4")
            self.group = V6_GROUP if kind == "v6" else V4_GROUP
        self.ends = [End(self.network.add(number, seed=number % 2)) for number in (1, 2, 3)]
        self.vector = {"dgid": self.group, "is_global": 1, "port_num": 1, "hop_limit": 1, "dlid": self.lid}

    def queue_pair(self, end, qkey=QKEY, attach=True):
        qp = end.qp(UD)
        services.start_datagrams(qp, qkey)
        if attach:
            end.device.attach_mcast(qp.number, self.group, self.lid)
        return qp

    def send(self, end, qp, data=b"to all", wr_id=1):
        ah = end.device.create_ah(end.pd, self.vector)
        end.memory[: len(data)] = data
        post(qp, SEND, [end.sge(0, len(data))], wr_id=wr_id, ah=ah, qpn=ALL, qkey=QKEY)

    def counters(self, end, qp=None):
        return end.device.query_counters(qp=qp.number if qp else 0)


@pytest.fixture(params=["v4", "v6", "native"])
def subnet(request):
    made = Subnet(request.param)
    yield made
    made.network.close()


def test_every_queue_pair_of_the_group_gets_its_copy_on_every_adapter(subnet):
    sender_end = subnet.ends[0]
    sender = subnet.queue_pair(sender_end, attach=False)
    listeners = [(end, subnet.queue_pair(end)) for end in subnet.ends for _ in range(2)]
    for place, (end, qp) in enumerate(listeners):
        qp.post_recv(10 + place, [end.sge(1000 + 200 * place, 100)])
    subnet.send(sender_end, sender)
    found = {number: [] for number in range(3)}
    for number, end in enumerate(subnet.ends):
        found[number] = sorted((c.wr_id, c.status, c.src_qp) for c in end.poll(3) if c.wr_id >= 10)
    assert found == {
        number: [(10 + 2 * number + copy, 0, sender.number) for copy in (0, 1)] for number in range(3)
    }
    for place, (end, _) in enumerate(listeners):
        at = 1000 + 200 * place + 40
        assert end.memory[at : at + 6] == b"to all"
    for end in subnet.ends:
        assert subnet.counters(end)["multicast_copies"] == 2


def test_c10_58_the_sender_gets_no_copy_of_its_own_but_its_neighbours_do(subnet):
    end = subnet.ends[0]
    sender, neighbour = subnet.queue_pair(end), subnet.queue_pair(end)
    far = subnet.queue_pair(subnet.ends[1])
    for at, (place, qp) in enumerate(((end, sender), (end, neighbour), (subnet.ends[1], far))):
        qp.post_recv(qp.number, [place.sge(1000 * at + 100, 100)])
    subnet.send(end, sender)
    assert sorted(c.wr_id for c in end.poll(3)) == sorted([1, neighbour.number])
    assert [c.wr_id for c in subnet.ends[1].poll(2)] == [far.number]
    # a queue pair of the sender's number at another adapter is another queue pair
    twin = subnet.queue_pair(subnet.ends[2])
    assert twin.number == sender.number
    twin.post_recv(5, [subnet.ends[2].sge(0, 100)])
    subnet.send(end, sender, wr_id=2)
    assert [c.wr_id for c in subnet.ends[2].poll(1)] == [5]


def test_the_header_in_front_names_sender_and_group(subnet):
    sender = subnet.queue_pair(subnet.ends[0], attach=False)
    end = subnet.ends[1]
    qp = subnet.queue_pair(end)
    qp.post_recv(1, [end.sge(0, 100)])
    subnet.send(subnet.ends[0], sender)
    (done,) = end.poll(1)
    assert (done.byte_len, done.wc_flags & 1) == (46, 1)
    source = subnet.ends[0].node.gid
    if subnet.kind == "v4":
        header = Ipv4.decode(end.memory, 20)
        assert (header.source, header.destination) == (source[12:], subnet.group[12:])
    elif subnet.kind == "v6":
        header = Ipv6.decode(end.memory, 0)
        assert (header.source, header.destination) == (source, subnet.group)
    else:
        assert (bytes(end.memory[8:24]), bytes(end.memory[24:40])) == (source, subnet.group)


def test_one_copy_that_cannot_be_taken_takes_nothing_from_the_others(subnet):
    sender = subnet.queue_pair(subnet.ends[0], attach=False)
    end = subnet.ends[1]
    empty, other_key, fit = (
        subnet.queue_pair(end), subnet.queue_pair(end, QKEY + 1), subnet.queue_pair(end)
    )  # fmt: skip
    unready = end.qp(UD)
    unready.modify({"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qkey": QKEY})
    end.device.attach_mcast(unready.number, subnet.group, subnet.lid)
    for at, qp in enumerate((other_key, fit, unready)):
        qp.post_recv(qp.number, [end.sge(200 * at, 100)])
    subnet.send(subnet.ends[0], sender)
    assert [c.wr_id for c in end.poll(4)] == [fit.number]
    assert subnet.counters(end, empty)["drops_no_receive"] == 1
    assert subnet.counters(end, other_key)["drops_qkey"] == 1
    figures = subnet.counters(end)
    assert figures["multicast_copies"] == 3
    assert sum(n for name, n in figures.items() if name.startswith("drops_")) == 0
    assert figures["packets_received"] == 1


def test_who_left_the_group_hears_nothing_and_the_last_one_ends_it(subnet):
    sender = subnet.queue_pair(subnet.ends[0], attach=False)
    end = subnet.ends[1]
    first, second = subnet.queue_pair(end), subnet.queue_pair(end)
    for qp in (first, second):
        qp.post_recv(qp.number, [end.sge(0, 100)])
    end.device.detach_mcast(first.number, subnet.group, subnet.lid)
    with pytest.raises(DriverError):
        end.device.detach_mcast(first.number, subnet.group, subnet.lid)
    subnet.send(subnet.ends[0], sender)
    assert [c.wr_id for c in end.poll(2)] == [second.number]
    second.destroy()
    subnet.send(subnet.ends[0], sender)
    assert end.poll(1) == []
    assert subnet.counters(end)["drops_unknown_qp"] == 1
    first.modify({"qp_state": 6})
    assert [(c.wr_id, c.status) for c in end.poll(1)] == [(first.number, 5)]


def test_a_sender_without_listeners_here_counts_nothing_as_received(subnet):
    end = subnet.ends[0]
    sender = subnet.queue_pair(end, attach=False)
    subnet.send(end, sender)
    assert [c.status for c in end.poll(1)] == [0]
    figures = subnet.counters(end)
    assert figures["loopback_packets"] == figures["packets_received"] == figures["drops_unknown_qp"] == 0
    # alone in its group: nobody else is there, which is no fault
    end.device.attach_mcast(sender.number, subnet.group, subnet.lid)
    subnet.send(end, sender)
    end.poll(1)
    assert subnet.counters(end)["drops_unknown_qp"] == 0


def test_a_link_is_told_when_the_first_queue_pair_joins_and_the_last_one_leaves(subnet):
    end = subnet.ends[0]
    groups = end.node.adapter.groups
    told = []
    groups.join = lambda port, group: told.append(("join", port, group))
    groups.leave = lambda port, group: told.append(("leave", port, group))
    first, second = subnet.queue_pair(end), subnet.queue_pair(end)
    end.device.attach_mcast(first.number, subnet.group, subnet.lid)
    assert told == [("join", 1, subnet.group)]
    end.device.detach_mcast(first.number, subnet.group, subnet.lid)
    assert told == [("join", 1, subnet.group)]
    second.destroy()
    assert told == [("join", 1, subnet.group), ("leave", 1, subnet.group)]


def test_a_queue_pair_is_not_attached_where_the_link_cannot_join(subnet):
    end = subnet.ends[0]

    def refuse(port, group):
        raise OSError(errno.ENOBUFS, "too many groups")

    end.node.adapter.groups.join = refuse
    qp = subnet.queue_pair(end, attach=False)
    with pytest.raises(DriverError) as refused:
        end.device.attach_mcast(qp.number, subnet.group, subnet.lid)
    assert refused.value.errno == errno.ENOBUFS
    assert not end.node.adapter.groups.heard(subnet.group)
    with pytest.raises(DriverError):
        end.device.detach_mcast(qp.number, subnet.group, subnet.lid)


def test_the_port_by_which_a_queue_pair_has_joined_leaves():
    """Whatever port it has meanwhile."""
    flow = SimpleNamespace(port_number=1, multicasts=True)
    queue_pair, told = SimpleNamespace(number=7, flow=flow), []
    groups = MulticastGroups(AdapterConfig(gids=(gid(1),)))
    groups.leave = lambda port, group: told.append((port, group))
    groups.attach(V4_GROUP, queue_pair)
    flow.port_number = 2
    groups.forget(queue_pair)
    assert told == [(1, V4_GROUP)]


def receiver(number, port=1):
    return SimpleNamespace(number=number, flow=SimpleNamespace(port_number=port, multicasts=True))


def groups_of_the_alphabet(**limits):
    """Groups within limits, and what their links were told."""
    told = []
    groups = MulticastGroups(AdapterConfig(gids=(gid(1),), **limits))
    groups.join = lambda port, group: told.append(("join", port, group))
    groups.leave = lambda port, group: told.append(("leave", port, group))
    return groups, told


def test_each_port_joins_with_its_first_queue_pair_and_leaves_with_its_last():
    groups, told = groups_of_the_alphabet()
    first, second, other = receiver(1), receiver(2), receiver(3, port=2)
    for queue_pair in (first, first, second, other):
        groups.attach(b"a", queue_pair)
    assert told == [("join", 1, b"a"), ("join", 2, b"a")]
    assert groups.members(b"a") == [first, second, other]
    told.clear()
    for queue_pair in (first, second):
        groups.detach(b"a", queue_pair)
    assert told == [("leave", 1, b"a")]
    assert groups.heard(b"a")
    groups.detach(b"a", other)
    assert told == [("leave", 1, b"a"), ("leave", 2, b"a")]
    assert not groups.heard(b"a")


def test_limits_of_groups_and_members_are_exact():
    groups, _ = groups_of_the_alphabet(max_mcast_grp=2, max_mcast_qp_attach=2)
    for group in (b"a", b"b"):
        for number in (1, 2):
            groups.attach(group, receiver(number))
    with pytest.raises(OSError, match="max_mcast_qp_attach = 2") as refused:
        groups.attach(b"a", receiver(3))
    assert refused.value.errno == errno.ENOMEM
    with pytest.raises(OSError, match="max_mcast_grp = 2") as refused:
        groups.attach(b"c", receiver(1))
    assert refused.value.errno == errno.ENOMEM
    groups.attach(b"a", receiver(2))  # one that is in it already takes no place
    for number in (1, 2):
        groups.detach(b"a", receiver(number))
    groups.attach(b"c", receiver(3))


def test_a_link_that_cannot_join_says_why():
    groups, _ = groups_of_the_alphabet()

    def refuse(port, group):
        raise OSError(errno.ENOBUFS, "too many")

    groups.join = refuse
    with pytest.raises(OSError, match="its port cannot join: too many") as refused:
        groups.attach(b"a", receiver(1))
    assert refused.value.errno == errno.ENOBUFS
    assert groups.members(b"a") == []
