"""The descriptor that stands for a stream: readable and writable as it is said, and nothing else."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterator

import pytest

from softhca.sockets.readiness import Readiness


@pytest.fixture
def made() -> Iterator[Readiness]:
    one = Readiness()
    yield one
    one.close()


def events_of(number: int) -> int:
    """What poll says of a descriptor, of reading and writing and ends."""
    poll = select.poll()
    poll.register(number, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    return next((events for _, events in poll.poll(0)), 0)


@pytest.fixture
def number(made: Readiness) -> Iterator[int]:
    """A number of the program's that stands for it."""
    found = os.open(os.devnull, os.O_RDONLY)
    made.replace(found)
    yield found
    os.close(found)


def test_a_new_one_is_writable_and_each_state_is_seen(made: Readiness, number: int) -> None:
    assert events_of(number) == select.POLLOUT
    for readable, writable in ((True, True), (True, False), (False, False), (False, True), (True, False)):
        made.set(readable, writable)
        assert events_of(number) == readable * select.POLLIN | writable * select.POLLOUT
        made.set(readable, writable)
        assert events_of(number) == readable * select.POLLIN | writable * select.POLLOUT


def test_news_are_what_somebody_may_wait_for(made: Readiness) -> None:
    for state, news in (
        ((False, True), False), ((True, True), True), ((True, True), False), ((False, True), False),
        ((False, False), False), ((False, True), True), ((True, False), True), ((False, True), True),
        ((False, False), False), ((True, True), True),
    ):  # fmt: skip
        assert made.set(*state) == news


def test_nobody_can_write_to_it_by_any_means(made: Readiness, number: int) -> None:
    with pytest.raises(BrokenPipeError):
        os.write(number, b"x")
    reads = os.open(__file__, os.O_RDONLY)
    with pytest.raises(OSError, match="Invalid") as told:
        os.sendfile(number, reads, 0, 10)
    assert told.value.errno == errno.EINVAL
    os.close(reads)


@pytest.mark.parametrize("inheritable", [True, False])
def test_its_number_is_inherited_as_before(made: Readiness, inheritable: bool) -> None:
    number = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(number, inheritable)
    made.replace(number)
    assert os.get_inheritable(number) == inheritable
    assert os.fstat(number).st_ino == made.inode
    os.close(number)


def test_a_number_that_outlives_it_is_readable(made: Readiness, number: int) -> None:
    made.close()
    assert events_of(number) & select.POLLIN
    assert not made.set(False, True)  # nobody has it any more


def test_what_is_let_go_is_in_no_epoll_once_its_number_is_closed(made: Readiness) -> None:
    one, other = socket.socketpair()
    with one, other, select.epoll() as epoll:
        made.replace(one.fileno())
        epoll.register(one.fileno(), select.EPOLLOUT)
        os.close(one.detach())
        assert epoll.poll(0) != []
        made.let_go()
        assert epoll.poll(0) == []
