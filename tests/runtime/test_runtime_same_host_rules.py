"""What a neighbour is believed, what it may take, and what of it goes with it: each rule by itself."""

import errno
import mmap
import os
import select
import socket
from types import SimpleNamespace

import pytest

from softhca.machine.primitives import address_of
from softhca.memory.shared_layout import MAX_ARENA_NUMBER
from softhca.memory.shared_path import MAX_ARENAS
from softhca.runtime import messages, same_host_address, same_host_peers
from softhca.runtime.same_host import SameHost
from softhca.runtime.same_host_address import MAX_PEERS, SameHostAddress
from softhca.runtime.same_host_limits import MAPPED
from softhca.runtime.same_host_peers import PROBE_BYTES, VERSION, WAKE, InboundPeer, OutboundPeer

GID, OWN = bytes(15) + b"\1", bytes(15) + b"\2"
SIZE = 4096


class Receiver:
    """A ring's end that says whether it is armed; ``empty``: there is nothing in it."""

    def __init__(self, empty=True):
        self.empty, self.armed = empty, 0

    def arm_wakeup(self):
        self.armed += 1
        return self.empty

    def disarm_wakeup(self):
        self.armed = 0


@pytest.fixture
def shared():
    """A `SameHost` without sockets, whose port has two rings."""
    found = object.__new__(SameHost)
    found.ports = {1: SimpleNamespace(receivers=[Receiver(), Receiver()])}
    found._sleepers, found._wake = 0, os.eventfd(0, os.EFD_NONBLOCK)
    found._by_descriptor, found._by_process, found._listeners, found._departing = {}, {}, {}, []
    found.automatic = False
    yield found
    os.close(found._wake)


def test_every_ring_is_armed_before_any_is_believed_to_be_empty(shared):
    first, second = shared.receivers
    first.empty = False
    assert not shared.arm_wakeup()
    assert shared._sleepers == 0
    first.empty = True
    assert shared.arm_wakeup()
    assert (first.armed, second.armed) == (1, 1)
    first.empty = False
    assert not shared.arm_wakeup()
    assert (first.armed, second.armed) == (3, 3), "the first sleeper is to be woken still"
    assert select.select([shared._wake], [], [], 0)[0], "and is"
    shared.disarm_wakeup()
    assert (first.armed, second.armed) == (0, 0)


@pytest.mark.parametrize(
    ("pid", "uid", "automatic", "shares"),
    [(5, 0, False, True), (5, 1, False, False), (0, 0, False, True), (0, 0, True, False), (5, 0, True, True)],
)
def test_memory_is_shared_with_the_same_user_alone(shared, monkeypatch, pid, uid, automatic, shares):
    monkeypatch.setattr(messages, "peer_of", lambda channel: (pid, os.geteuid() + uid))
    monkeypatch.setattr(shared, "may_keep", lambda descriptor: True)
    shared.automatic = automatic
    assert shared.may_share_with(SimpleNamespace(fileno=lambda: 3)) is shares


def test_peers_are_bounded(shared):
    shared._by_descriptor = dict.fromkeys(range(2 * MAX_PEERS - 1))
    assert shared.has_room
    shared._by_descriptor[-1] = None
    assert not shared.has_room


def test_who_has_left_in_the_middle_of_an_access_takes_a_place_still(shared):
    shared._by_descriptor = dict.fromkeys(range(MAX_PEERS))
    shared._departing = [None] * (MAX_PEERS - 1)
    assert shared.has_room
    shared._departing.append(None)
    assert not shared.has_room


def test_a_descriptor_that_is_anothers_now_says_nothing_of_a_process(shared, monkeypatch):
    dropped, ended = [], [False]
    peer = SimpleNamespace(process=SimpleNamespace(has_ended=lambda: ended[0]))
    shared._by_process[9] = peer
    monkeypatch.setattr(shared, "_drop", dropped.append)
    shared._handle(9)
    assert dropped == []
    ended[0] = True
    shared._handle(9)
    assert dropped == [peer]


def test_what_a_peer_passes_unasked_is_closed(shared, monkeypatch):
    come = [({"said": "anything"}, [41, 42]), None]
    taken, closed, dropped = [], [], []
    monkeypatch.setattr(messages, "receive", lambda channel: come.pop(0))
    monkeypatch.setattr(messages, "close_all", closed.extend)
    monkeypatch.setattr(shared, "_drop", dropped.append)
    port = SimpleNamespace(take=lambda peer, message, descriptors: taken.append(descriptors))
    peer = OutboundPeer(port, Path(), None, None)
    shared._receive(peer)
    assert (taken, closed, dropped) == ([[41, 42]], [41, 42], [peer])


def test_who_is_inside_while_it_goes_keeps_its_reader_until_it_is_out(shared):
    inside, noted = [True], []
    reader = object()
    peer = SimpleNamespace(is_inside=lambda: inside[0], reader=reader, close=lambda: noted.append("closed"))
    readers = {reader}
    shared.sharing = SimpleNamespace(directory=SimpleNamespace(readers=readers, settle=noted.append))
    shared._departing.append(peer)
    shared._release_departed()
    assert (noted, readers) == ([], {reader})
    inside[0] = False
    shared._release_departed()
    assert (noted, readers, shared._departing) == ([reader, "closed"], set(), [])


@pytest.fixture
def hailed(shared, monkeypatch):
    """A peer that has connected, the other end of its channel, and what becomes of it."""
    noted = []

    def admit(peer, message, descriptors):
        noted.append("admitted")
        peer.reader = object()

    monkeypatch.setattr(shared, "_admit", admit)
    monkeypatch.setattr(shared, "_drop", lambda peer: noted.append("dropped"))
    monkeypatch.setattr(shared, "_rearm_wakeup", lambda: noted.append("woken"))
    own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.setblocking(False)
    with own, theirs:
        yield InboundPeer(None, own, None), theirs, noted


def test_a_peer_has_one_reader_however_often_it_asks(shared, hailed):
    peer, theirs, noted = hailed
    for _ in range(3):
        messages.send(theirs, {"connect": VERSION, "gid": GID.hex()})
    shared._receive(peer)
    assert noted == ["admitted", "dropped"]


def test_a_peer_may_wake_this_side_as_soon_as_it_has_its_reader(shared, hailed):
    peer, theirs, noted = hailed
    messages.send(theirs, {"connect": VERSION, "gid": GID.hex()})
    theirs.send(WAKE)
    shared._receive(peer)
    assert noted == ["admitted", "woken"]


# one port


class Path:
    """A path that notes what it is told of arenas."""

    def __init__(self, alive=True):
        self.alive, self.gid, self.arenas = alive, GID, []

    def set_arena(self, number, address, size):
        self.arenas.append((number, size))


@pytest.fixture
def address():
    """A `SameHostAddress` that listens nowhere."""
    found = object.__new__(SameHostAddress)
    found.same_host = SimpleNamespace(is_own=lambda gid: gid == OWN)
    found.gid = OWN
    found.senders, found._outbound, found._switching, found._retry_ns = {}, {}, [], {}
    found.port = SimpleNamespace(number=1, receivers=[], changes=0, in_flight=lambda gid: 0)
    found.port.changed = lambda: setattr(found.port, "changes", found.port.changes + 1)
    return found


def outbound(path):
    """A peer to which the handshake is done."""
    closed = []
    return SimpleNamespace(path=path, sender=object(), polls_before_switch=9, close=lambda: closed.append(1))


def test_the_ring_of_a_peer_that_has_gone_carries_nothing(address):
    peer = outbound(Path())
    address._outbound[GID] = peer
    address._switching.append(peer)
    address.drop_outbound(peer)
    address.switch()
    assert (address.senders, address.port.changes) == ({}, 0)
    address._switching.append(peer)
    address.switch()
    assert (list(address.senders), address.port.changes) == ([GID], 1)
    address.drop_outbound(peer)
    assert (address.senders, address.port.changes) == ({}, 2)


@pytest.mark.parametrize("gid", [OWN.hex(), GID.hex() + "00", ""])
def test_no_peer_has_a_gid_of_ones_own(address, gid):
    peer = SimpleNamespace(admit=lambda gid: pytest.fail("admitted"))
    with pytest.raises(OSError, match="no peer's GID") as refused:
        address.admit(peer, {"connect": VERSION, "gid": gid}, [])
    assert refused.value.errno == errno.EPROTO


def test_who_connects_here_may_be_asked_at_once(address, monkeypatch):
    monkeypatch.setattr(same_host_address, "MAX_PEERS", 4)
    for number in range(9):
        address._retry_later(bytes([number]) * 16)
        assert len(address._retry_ns) <= 4
    address._retry_later(GID)
    receiver = object()
    peer = SimpleNamespace(admit=lambda gid: None, receiver=receiver)
    address.admit(peer, {"connect": VERSION, "gid": GID.hex()}, [])
    assert GID not in address._retry_ns
    assert (address.port.receivers, address.port.changes) == ([receiver], 1)


# what an outbound peer gives


@pytest.fixture
def giving(monkeypatch):
    monkeypatch.setattr(same_host_peers, "map_sealed", lambda fd, size, writable: mmap.mmap(-1, size))
    return OutboundPeer(None, Path(), None, SimpleNamespace(pid=os.getpid()))


def refused(peer, message, descriptors=(3,)):
    with pytest.raises(OSError, match=r"cannot be|nothing here") as caught:
        peer.take(message, list(descriptors))
    return caught.value.errno == errno.EPROTO


def test_an_arena_is_given_once_and_taken_back(giving):
    giving.take({"arena": 1, "bytes": SIZE}, [3])
    assert refused(giving, {"arena": 1, "bytes": SIZE})
    giving.take({"gone": 1}, [])
    assert giving.path.arenas == [(1, SIZE), (1, 0)]
    assert refused(giving, {"gone": 1}, [])
    giving.take({"arena": 1, "bytes": SIZE}, [3])
    giving.take({"gone": 1}, [])


@pytest.mark.parametrize("message", [
    {"arena": 0, "bytes": SIZE}, {"arena": MAX_ARENA_NUMBER + 1, "bytes": SIZE},
    {"arena": "1", "bytes": SIZE}, {"arena": 1, "bytes": 0}, {"arena": 1},
    {"arena": 1, "bytes": (1 << 40) + 1}, {"reader": VERSION, "fence": True},
])  # fmt: skip
def test_what_cannot_be_is_not_mapped(giving, message):
    assert refused(giving, message, (3, 4) if "reader" in message else (3,))
    assert giving.path.arenas == []


def test_arenas_are_bounded(giving):
    for number in range(1, MAX_ARENAS + 1):
        giving.take({"arena": number, "bytes": SIZE}, [3])
    assert refused(giving, {"arena": MAX_ARENAS + 1, "bytes": SIZE})
    for number in range(1, MAX_ARENAS + 1):
        giving.take({"gone": number}, [])


def test_an_arena_that_cannot_be_mapped_takes_no_address_space(giving, monkeypatch):
    taken = []
    monkeypatch.setattr(type(MAPPED), "take", lambda self, size: bool(taken.append(size)) or True)
    monkeypatch.setattr(type(MAPPED), "give", lambda self, size: taken.remove(size))

    def scarce(fd, size, writable):
        raise OSError(errno.ENOMEM, "full")

    monkeypatch.setattr(same_host_peers, "map_sealed", scarce)
    with pytest.raises(OSError, match="full"):
        giving.take({"arena": 1, "bytes": SIZE}, [3])
    assert taken == []


@pytest.mark.parametrize("pid", ["own", "none"])
def test_a_probe_of_this_process_or_of_nobody_is_not_read(giving, monkeypatch, pid):
    probe = bytearray(PROBE_BYTES)
    said = {"probe": address_of(probe), "probe_bytes": probe.hex()}
    monkeypatch.setattr(same_host_peers.primitives, "read_process", lambda *words: pytest.fail("read"))
    giving.process.pid = os.getpid() if pid == "own" else 0
    assert giving._process_in_reach(said) == (0 if pid == "own" else -1)
    giving.process.pid = os.getpid() + 1
    for nowhere in (0, 1 << 63, -1, "5"):
        assert giving._process_in_reach({**said, "probe": nowhere}) == -1


def test_a_wakeup_that_finds_no_room_waits_for_nobody():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        peer = OutboundPeer(None, Path(), one, None)
        for _ in range(100_000):
            peer._wake()


class Told(InboundPeer):
    """A peer that was given this adapter's memory, or is about to be."""

    def __init__(self, reader):
        self.reader, self.messages = reader, []

    def send(self, message, descriptors=()):
        self.messages.append(message)


def test_who_was_given_an_arena_is_told_that_it_is_gone(shared):
    admitted, coming = Told(object()), Told(None)
    shared._by_descriptor = {3: admitted, 4: coming}
    shared._next_arena = 5
    shared.sharing = SimpleNamespace(directory=SimpleNamespace(arenas={}))
    number = shared.add_arena(SimpleNamespace(size_bytes=SIZE, fd=9))
    shared.remove_arena(number)
    shared.remove_arena(0)
    assert admitted.messages == [{"arena": 5, "bytes": SIZE}, {"gone": 5}]
    assert coming.messages == []
    assert shared.sharing.directory.arenas == {}


def test_the_number_of_an_arena_that_is_gone_is_no_other_one_s(shared):
    shared._next_arena = 1
    shared.sharing = SimpleNamespace(directory=SimpleNamespace(arenas={}))
    arenas = [SimpleNamespace(size_bytes=SIZE, fd=9) for _ in range(4)]
    numbers = [shared.add_arena(arenas[0]), shared.add_arena(arenas[1])]
    shared.remove_arena(numbers[1])
    numbers.append(shared.add_arena(arenas[2]))
    shared.remove_arena(numbers[0])
    numbers.append(shared.add_arena(arenas[3]))
    assert numbers == [1, 2, 3, 4]
    assert shared.sharing.directory.arenas == {3: arenas[2], 4: arenas[3]}


def test_a_wakeup_that_another_thread_has_read_is_made_again_for_who_sleeps_still(shared):
    """The descriptor is read here, in a poll, by a thread that was awake anyway."""
    assert shared.arm_wakeup()
    os.eventfd_write(shared._wake, 1)
    shared.receivers[0].empty = False
    shared._handle(shared._wake)
    assert select.select([shared._wake], [], [], 0)[0]
    shared.disarm_wakeup()
    shared._handle(shared._wake)
    assert not select.select([shared._wake], [], [], 0)[0], "nobody sleeps any more"
