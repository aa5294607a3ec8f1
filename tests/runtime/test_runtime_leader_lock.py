"""The lock of the one thread that sleeps for all: nobody waits for it, and it knows whose it is."""

import threading

import pytest

from machine_speed import limit_s
from softhca.runtime.leader_lock import LeaderLock

BOUND_S = limit_s(20)


def in_thread(work):
    """What ``work()`` returns in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(BOUND_S)
    assert found, "the thread waits"
    return found[0]


def test_one_thread_has_it_once_and_others_do_not_wait():
    lock = LeaderLock()
    assert (lock.mine(), lock.locked()) == (False, False)
    assert lock.acquire()
    assert not lock.acquire(), "nor a signal handler of that thread"
    assert (lock.mine(), lock.locked()) == (True, True)
    assert not in_thread(lock.acquire)
    assert in_thread(lambda: (lock.mine(), lock.locked())) == (False, True)
    lock.release()
    assert (lock.mine(), lock.locked()) == (False, False)

    def take_and_give_back():
        taken = lock.acquire()
        lock.release()
        return taken

    assert in_thread(take_and_give_back), "it is free after one release"
    assert lock.acquire()


def test_who_does_not_have_it_cannot_give_it_back():
    lock = LeaderLock()
    with pytest.raises(RuntimeError):
        lock.release()


def test_it_says_that_nobody_leads_before_another_thread_can():
    """The other way round it could say so of the thread that has taken it meanwhile."""
    lock = LeaderLock()
    lock.acquire()
    inner, seen = lock._lock, []

    class Spy:
        def release(self):
            seen.append(lock.locked())
            inner.release()

    lock._lock = Spy()
    lock.release()
    assert seen == [False]
