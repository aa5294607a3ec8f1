"""One link for the addresses of a port that come and go."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from wooden_link import Wooden

from softhca.links.followed_addresses import LOOK_NS, RETRY_NS, SETTLE_NS, FollowedAddresses
from softhca.links.link import AGAIN, NEVER, SENT
from softhca.links.several_addresses import SeveralAddresses
from softhca.wire.burst import Arrival, Burst
from softhca.wire.flows import source_port
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.route import V4_MAPPED_PREFIX, Route

GROUP = V4_MAPPED_PREFIX + bytes((239, 9, 5, 1))
ONE, OTHER, THIRD = (V4_MAPPED_PREFIX + bytes((10, 0, 0, n)) for n in (1, 2, 3))
SIX = bytes.fromhex("20010db8" + "00" * 11 + "01")
SIX_GROUP = bytes.fromhex("ff0e" + "00" * 13 + "09")
GID_OF = {"10.0.0.1": ONE, "10.0.0.2": OTHER, "10.0.0.3": THIRD, "2001:db8::1": SIX}


class Counted(Wooden):
    """With groups to wait for, and what counts."""

    def __init__(self, gid: bytes) -> None:
        super().__init__(gid)
        self.groups = os.pipe()
        self.refuses: OSError | None = None

    def group_fileno(self) -> int:
        return self.groups[0]

    def join(self, gid: bytes) -> None:
        super().join(gid)
        if self.refuses is not None:
            raise self.refuses

    def listen_for_frames(self) -> None:
        super().listen_for_frames()
        if self.refuses is not None:
            raise self.refuses

    def source_port_for(
        self, entropy: int, destination: bytes | None = None, source: bytes | None = None
    ) -> int:
        if self.refuses is not None:
            raise self.refuses
        return super().source_port_for(entropy, destination, source)

    @property
    def closed(self) -> bool:
        return self.pipe[0] < 0

    def close(self) -> None:
        if not self.closed:
            super().close()
            for each in self.groups:
                os.close(each)


@pytest.fixture
def made() -> Iterator[list[Counted]]:
    found = [Counted(gid) for gid in (ONE, SIX, OTHER)]
    yield found
    for each in found:
        each.close()


@pytest.fixture
def joined(made: list[Counted]) -> Iterator[SeveralAddresses]:
    link = SeveralAddresses(made[:2])
    yield link
    link.close()


def burst_from(source: bytes) -> Burst:
    burst = Burst()
    is_v4 = source.startswith(V4_MAPPED_PREFIX)
    burst.route = Route(ROCE_V4 if is_v4 else ROCE_V6, source, THIRD if is_v4 else SIX, 0xC000)
    return burst


def readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_an_address_that_comes_is_one_of_them(joined: SeveralAddresses, made: list[Counted]) -> None:
    joined.add(made[2])
    assert (joined.gid, joined.gids) == (ONE, (ONE, SIX, OTHER))
    assert joined.send(burst_from(OTHER)) == SENT
    made[2].waiting = [(THIRD, OTHER)]
    for wait_for, pipe in ((joined.fileno(), made[2].pipe), (joined.group_fileno(), made[2].groups)):
        assert not readable(wait_for)
        os.write(pipe[1], b"x")
        assert readable(wait_for)
    arrival = Arrival()
    assert joined.receive(arrival)
    assert not joined.receive(arrival)


def test_one_that_goes_is_closed_and_nothing_leaves_from_it(
    joined: SeveralAddresses, made: list[Counted]
) -> None:
    made[0].waiting = [(THIRD, ONE)]
    os.write(made[0].pipe[1], b"x")
    os.write(made[0].groups[1], b"x")
    joined.remove(ONE)
    assert made[0].closed
    assert (joined.gid, joined.address, joined.gids) == (ONE, ONE.hex(), (SIX,))
    assert joined.send(burst_from(ONE)) == -errno.EADDRNOTAVAIL
    assert joined.send(burst_from(SIX)) == SENT
    assert not joined.receive(Arrival())
    assert not readable(joined.fileno())
    assert not readable(joined.group_fileno())
    with pytest.raises(KeyError):
        joined.remove(ONE)


def test_what_has_been_counted_is_not_forgotten(joined: SeveralAddresses, made: list[Counted]) -> None:
    joined.remove(ONE)
    joined.add(made[2])
    assert joined.counters() == {"sent": 6, "receive_drops": 0}
    assert joined.shown_counters() == {"shown": 9}
    joined.remove(SIX)
    joined.remove(OTHER)
    assert joined.shown_counters() == {"shown": 9}


def test_with_no_address_at_all_nothing_goes_and_nothing_fails(
    joined: SeveralAddresses, made: list[Counted]
) -> None:
    for gid in joined.gids:
        joined.remove(gid)
    assert joined.gids == ()
    assert joined.send(burst_from(ONE)) == -errno.EADDRNOTAVAIL
    joined.abandon(burst_from(ONE))
    assert not joined.receive(Arrival())
    assert joined.source_port_for(5, ONE, OTHER) == source_port(5)
    assert joined.preserves_bursts(ONE) is False
    assert (joined.next_deadline(), joined.expire(7)) == (NEVER, False)
    joined.leave(GROUP)
    with pytest.raises(OSError, match="IP version"):
        joined.join(GROUP)
    with pytest.raises(OSError, match="first address") as refused:
        joined.listen_for_frames()
    assert refused.value.errno == errno.EADDRNOTAVAIL
    joined.add(made[2])
    assert joined.send(burst_from(OTHER)) == SENT


def test_a_burst_that_waits_for_one_that_has_gone_is_abandoned_nowhere(
    joined: SeveralAddresses, made: list[Counted]
) -> None:
    made[0].answer = AGAIN
    assert joined.send(burst_from(ONE)) == AGAIN
    joined.remove(ONE)
    joined.abandon(burst_from(ONE))
    assert "abandon" not in made[0].said


def test_groups_go_over_to_the_next_address_of_their_version(
    joined: SeveralAddresses, made: list[Counted], caplog: pytest.LogCaptureFixture
) -> None:
    for group in (GROUP, SIX_GROUP):
        joined.join(group)
    joined.add(made[2])
    assert made[2].said == []
    joined.remove(ONE)
    assert made[2].said == [("join", GROUP)]
    assert made[1].said == [("join", SIX_GROUP)]
    joined.leave(GROUP)
    joined.remove(OTHER)
    back = Counted(ONE)
    joined.add(back)
    assert back.said == []
    joined.remove(SIX)
    later = Counted(SIX)
    later.refuses = OSError(errno.ENOBUFS, "too many groups")
    joined.add(later)
    assert later.said == [("join", SIX_GROUP)]
    assert "is no member of a group any more: [Errno 105] too many groups" in caplog.text


def test_frames_come_to_the_first_address_when_it_is_back(
    joined: SeveralAddresses, made: list[Counted], caplog: pytest.LogCaptureFixture
) -> None:
    joined.listen_for_frames()
    joined.remove(ONE)
    joined.add(made[2])
    assert made[2].said == []
    back = Counted(ONE)
    joined.add(back)
    assert back.said == ["frames"]
    joined.remove(ONE)
    again = Counted(ONE)
    again.refuses = OSError(errno.EADDRINUSE, "taken")
    joined.add(again)
    assert "no Ethernet frames come to" in caplog.text


@pytest.mark.parametrize("refused", ["fileno", "group_fileno"])
def test_one_that_cannot_be_waited_for_is_closed_and_none_of_them(
    joined: SeveralAddresses, made: list[Counted], monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    monkeypatch.setattr(made[2], refused, lambda: 1 << 20)
    with pytest.raises(OSError, match="Bad file descriptor"):
        joined.add(made[2])
    assert made[2].closed
    assert joined.gids == (ONE, SIX)
    assert not readable(joined.fileno())


class Interface:
    """A watch whose answers a test gives: ``present`` addresses, ``news`` that they have changed."""

    interface = "eth9"

    def __init__(self) -> None:
        self.present: list[str] = ["10.0.0.1"]
        self.news = False
        self.asked = 0
        self.looks = 0
        self.refuses: OSError | None = None
        self.pipe = os.pipe()

    def fileno(self) -> int:
        return self.pipe[0]

    def changed(self) -> bool:
        self.looks += 1
        found, self.news = self.news, False
        return found

    def addresses(self) -> list[str]:
        self.asked += 1
        if self.refuses is not None:
            raise self.refuses
        return list(self.present)

    def close(self) -> None:
        if self.pipe[0] >= 0:
            for each in self.pipe:
                os.close(each)
            self.pipe = (-1, -1)


class Followed:
    """A link that follows an `Interface`; what is ``told`` of changes, and what has been ``opened``."""

    def __init__(self, most: int = 16) -> None:
        self.watch = Interface()
        self.told: list[tuple[bytes, ...]] = []
        self.unwanted: list[bytes] = []
        self.opened: list[str] = []
        self.broken: dict[str, Exception] = {}
        self.links: list[Counted] = [Counted(ONE)]
        self.link = FollowedAddresses(self.links[:1], self.watch, self.open, most)  # type: ignore[arg-type]
        self.link.on_change = self.change
        self.now = 5_000_000_000

    def open(self, text: str) -> Any:
        self.opened.append(text)
        if text in self.broken:
            raise self.broken[text]
        self.links.append(Counted(GID_OF[text]))
        return self.links[-1]

    def change(self, gids: tuple[bytes, ...]) -> list[bytes]:
        self.told.append(gids)
        return [gid for gid in gids if gid in self.unwanted]

    def becomes(self, *present: str) -> bool:
        """The interface has these addresses, which is told; whether that changes anything."""
        self.watch.present = list(present)
        self.watch.news = True
        self.now += SETTLE_NS
        return self.link.expire(self.now)


@pytest.fixture
def followed() -> Iterator[Followed]:
    with ExitStack() as stack:
        made = Followed()
        stack.callback(made.link.close)
        yield made


def test_what_has_changed_before_the_first_round_is_found_in_it(followed: Followed) -> None:
    followed.watch.present.append("2001:db8::1")
    assert followed.link.next_deadline() == 0
    assert followed.link.expire(followed.now)
    assert followed.told == [(ONE, SIX)]
    assert followed.link.next_deadline() == NEVER


def test_addresses_come_and_go_with_the_interface_s(followed: Followed) -> None:
    assert not followed.becomes("10.0.0.1")
    assert followed.becomes("2001:db8::1", "10.0.0.1", "10.0.0.2")
    assert followed.link.gids == (ONE, SIX, OTHER)
    assert followed.becomes("10.0.0.2")
    assert followed.becomes()
    assert followed.becomes("10.0.0.1")
    assert followed.told == [(ONE, SIX, OTHER), (OTHER,), (), (ONE,)]
    assert followed.opened == ["2001:db8::1", "10.0.0.2", "10.0.0.1"]
    assert [each.closed for each in followed.links] == [True, True, True, False]


def test_who_is_told_of_changes_finds_them_done(followed: Followed) -> None:
    def look(gids: tuple[bytes, ...]) -> tuple[bytes, ...]:
        assert followed.link.gids == gids == (OTHER,)
        assert followed.link.send(burst_from(OTHER)) == SENT
        assert followed.links[0].closed
        followed.told.append(gids)
        return ()

    followed.link.on_change = look
    assert followed.becomes("10.0.0.2")
    assert len(followed.told) == 1


def test_addresses_that_nobody_wants_are_closed_again(followed: Followed) -> None:
    followed.unwanted = [OTHER]
    assert followed.becomes("10.0.0.1", "10.0.0.2", "2001:db8::1")
    assert followed.link.gids == (ONE, SIX)
    assert followed.links[1].closed
    followed.unwanted = []
    assert followed.becomes("10.0.0.1", "10.0.0.2")
    assert followed.told[-1] == (ONE, OTHER)


def test_no_more_are_opened_than_there_is_room_for() -> None:
    followed = Followed(most=2)
    assert followed.becomes("2001:db8::1", "10.0.0.2", "10.0.0.1")
    assert followed.link.gids == (ONE, SIX)
    assert followed.becomes("2001:db8::1", "10.0.0.2")
    assert followed.link.gids == (SIX, OTHER)
    followed.link.close()


def test_the_interface_is_asked_when_it_has_news_and_not_too_often(followed: Followed) -> None:
    link, watch, start = followed.link, followed.watch, followed.now
    link.expire(start)
    for now in range(start, start + LOOK_NS, LOOK_NS // 10):
        link.expire(now)
    assert (watch.looks, watch.asked) == (1, 1)
    watch.news = True
    link.expire(start + LOOK_NS)
    assert (watch.looks, watch.asked) == (2, 1)
    assert link.next_deadline() == start + SETTLE_NS
    for now in range(start + LOOK_NS, start + SETTLE_NS, LOOK_NS):
        watch.news = True
        link.expire(now)
        assert link.next_deadline() == start + SETTLE_NS
    assert watch.asked == 1
    link.expire(start + SETTLE_NS)
    assert (watch.asked, link.next_deadline()) == (2, NEVER)
    followed.links[0].due = 7
    assert link.next_deadline() == 7
    assert link.expire(start + SETTLE_NS)


def test_news_wake_who_sleeps(followed: Followed) -> None:
    assert not readable(followed.link.fileno())
    os.write(followed.watch.pipe[1], b"x")
    assert readable(followed.link.fileno())


def test_where_the_kernel_does_not_say_it_is_asked_again(followed: Followed) -> None:
    followed.watch.refuses = OSError(errno.ENOBUFS, "no")
    assert not followed.becomes()
    assert followed.link.gids == (ONE,)
    assert followed.link.next_deadline() == followed.now + RETRY_NS
    followed.watch.refuses = None
    followed.now += RETRY_NS
    assert followed.link.expire(followed.now)
    assert followed.link.gids == ()


@pytest.mark.parametrize("error", [OSError(errno.EADDRINUSE, "taken"), ValueError("an MTU of 300 bytes")])
def test_an_address_that_cannot_be_opened_is_tried_again(
    followed: Followed, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    followed.broken = {"10.0.0.2": error}
    assert followed.becomes("10.0.0.1", "10.0.0.2", "2001:db8::1")
    assert followed.told == [(ONE, SIX)]
    for _ in range(2):
        assert followed.link.next_deadline() == followed.now + RETRY_NS
        followed.now += RETRY_NS
        assert not followed.link.expire(followed.now)
    assert caplog.text.count("10.0.0.2 is no address of a port yet") == 1
    followed.broken = {}
    followed.now += RETRY_NS
    assert followed.link.expire(followed.now)
    assert followed.told == [(ONE, SIX), (ONE, SIX, OTHER)]
    assert followed.link.next_deadline() == NEVER
    followed.becomes("10.0.0.1")
    followed.broken = {"10.0.0.2": error}
    followed.becomes("10.0.0.1", "10.0.0.2")
    assert caplog.text.count("10.0.0.2 is no address of a port yet") == 2


def test_a_flow_from_an_address_that_is_not_missed_yet_has_any_port(followed: Followed) -> None:
    link = followed.links[0]
    assert followed.link.source_port_for(9, OTHER, ONE) == 0xC000
    link.refuses = OSError(errno.EADDRNOTAVAIL, "gone")
    assert followed.link.source_port_for(9, OTHER, ONE) == source_port(9)
    link.refuses = OSError(errno.EMFILE, "no descriptor")
    with pytest.raises(OSError, match="no descriptor"):
        followed.link.source_port_for(9, OTHER, ONE)


def test_all_is_closed_where_it_cannot_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for refuse in (Interface, Counted):
        watch, link = Interface(), Counted(ONE)
        pipes = watch.pipe, link.pipe
        with monkeypatch.context() as patched:
            patched.setattr(refuse, "fileno", lambda self: 1 << 20)
            with pytest.raises(OSError, match="Bad file descriptor"):
                FollowedAddresses([link], watch, Counted, 16)  # type: ignore[arg-type]
        assert (watch.pipe, link.pipe) == ((-1, -1), (-1, -1))
        assert pipes[0][0] >= 0
    followed = Followed()
    followed.link.close()
    assert followed.watch.pipe == (-1, -1)
    assert followed.links[0].closed
