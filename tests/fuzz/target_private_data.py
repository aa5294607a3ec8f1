"""Private data of connection messages, of whatever length and content: the addresses of RDMA CM, instance
numbers, what channels and sockets say in theirs.  They are understood or refused, and what is understood can
be said again.

Input: a byte that says whose they are, then the data.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

from fuzz_choices import Choices

from softhca.channels.errors import ProtocolError as ChannelProtocolError
from softhca.channels.messages import End, Greeting
from softhca.management.cm import instances
from softhca.management.cm import messages as m
from softhca.management.ip_service import HEADER_BYTES, IpHeader
from softhca.sockets.protocol import Offer, addresses_of
from softhca.sockets.protocol import ProtocolError as SocketProtocolError

KINDS = tuple(m.ATTRIBUTES.values())
PLACE = b"\x01" * 16
GIDS = b"\x11" * 16, b"\x22" * 16


def addresses(data: bytes) -> None:
    """In front of a program's own: a header that is known says the same again."""
    if len(data) < HEADER_BYTES:
        with contextlib.suppress(ValueError):
            IpHeader.decode(data)
            raise AssertionError("a header that is not whole")
        return
    header = IpHeader.decode(data)
    assert len(header.source_gid) == len(header.destination_gid) == 16
    assert 0 <= header.source_port <= 0xFFFF
    if header.known:
        assert IpHeader.decode(header.encode()) == header
        assert header.ip_version in (4, 6)


def numbers(data: bytes) -> None:
    """Behind a program's own: an offer or an answer is a number that there is, or none."""
    for whole in (data, data.ljust(92, b"\0"), data.rjust(196, b"\0")):
        offered, answered = instances.offer_of(whole), instances.answer_of(whole)
        assert 0 <= min(offered, answered) <= max(offered, answered) <= instances.INSTANCES
        assert not (offered and answered)
        agreed = instances.Instances(random.Random(len(data)))
        if offered:
            holds = agreed.agree(PLACE, offered)
            assert holds == offered
            assert instances.without(whole)[-instances.BLOCK_BYTES :] == bytes(instances.BLOCK_BYTES)
        agreed.agreed(PLACE, answered)
        assert 1 <= agreed.next(PLACE) <= instances.INSTANCES
        if len(whole) < instances.BLOCK_BYTES:
            continue
        pairs = (instances.with_offer, instances.offer_of), (instances.with_answer, instances.answer_of)
        for add, read in pairs:
            made = add(whole, 77)
            assert (made is None) == any(whole[-instances.BLOCK_BYTES :])
            if made is not None:
                assert len(made) == len(whole)
                assert read(made) == 77


def greeting(data: bytes) -> None:
    """Of channels."""
    with contextlib.suppress(ChannelProtocolError):
        found = Greeting.decode(data)
        assert Greeting.decode(found.encode()) == found


def offer(data: bytes) -> None:
    """Of sockets; the addresses behind it are a request's."""
    with contextlib.suppress(SocketProtocolError):
        found = Offer.decode(data)
        assert found.pool_bytes & (found.pool_bytes - 1) == 0
        said = found.encode(*GIDS)
        assert Offer.decode(said) == found
        assert addresses_of(said) == GIDS
        assert all(len(each) == 16 for each in addresses_of(data))


def room(data: bytes) -> None:
    """Of any message: as long as it has room, or refused; it comes out as it went in."""
    for kind in KINDS:
        if len(data) > kind.PRIVATE_BYTES:
            with contextlib.suppress(ValueError):
                m.padded(kind, data)
                raise AssertionError("longer than the message has room")
            continue
        padded = m.padded(kind, data)
        assert padded == data.ljust(kind.PRIVATE_BYTES, b"\0")
        assert m.decode(m.encode(kind(private_data=padded), 5)) == (5, kind(private_data=padded))


WHOSE: tuple[Callable[[bytes], None], ...] = (addresses, numbers, greeting, offer, room)


def one_input(data: bytes) -> None:
    choices = Choices(data)
    choices.pick(WHOSE)(choices.rest())


def seeds() -> Iterator[bytes]:
    """What is right, cut at every length, and a little wrong."""
    header = IpHeader.between(GIDS[0], 7471, GIDS[1]).encode()
    block = instances.with_offer(bytes(92), 5)
    answer = instances.with_answer(bytes(196), 127)
    assert block is not None
    assert answer is not None
    end = End(service=2, qp_num=17, psn=5, slots=16, slot_bytes=4096, largest_bytes=1 << 20)
    said = [
        (0, header), (0, header.ljust(92, b"\7")), (1, block), (1, answer[-20:]), (4, bytes(92)),
        (2, Greeting(end, 64).encode()), (3, Offer(4096, 1 << 20, 7).encode(*GIDS)),
    ]  # fmt: skip
    for whose, data in said:
        for length in (*range(0, len(data), 7), len(data)):
            yield bytes([whose]) + data[:length]
        yield bytes([whose]) + bytes(each ^ 1 for each in data)
    for whose in range(len(WHOSE)):
        yield bytes([whose]) + bytes(300)
        yield bytes([whose]) + b"\xff" * 224
