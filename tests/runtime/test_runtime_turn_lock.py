"""The lock of a loop: one thread at a time, the same one as often as it likes, and nobody waits for ever."""

import sys
import threading
import time

import pytest

from machine_speed import limit_s
from softhca.runtime.turn_lock import TurnLock

BOUND_S = limit_s(20)


def in_thread(work):
    """What ``work()`` returns in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(BOUND_S)
    assert found, "the thread has not come back"
    return found[0]


def test_the_owner_may_take_it_again_and_others_may_not():
    lock = TurnLock()
    assert lock.take()
    assert lock.take()
    assert lock.acquire()
    for _ in range(3):
        assert not in_thread(lock.take)
        assert not in_thread(lambda: lock.acquire(False))
        lock.release()

    def take_and_give_back():
        taken = lock.take()
        lock.release()
        return taken

    assert in_thread(take_and_give_back)
    assert lock.take(), "it is free again"
    lock.release()


def test_whose_it_is():
    lock = TurnLock()
    assert not lock.mine()
    lock.take()
    lock.take()
    assert lock.mine()
    assert not in_thread(lock.mine)
    lock.release()
    assert lock.mine()
    lock.release()
    assert not lock.mine()


def test_only_the_owner_gives_it_back():
    lock = TurnLock()
    with pytest.raises(RuntimeError):
        lock.release()
    lock.take()

    def release():
        with pytest.raises(RuntimeError):
            lock.release()
        return True

    assert in_thread(release)
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_one_who_waits_gives_up_in_time():
    lock = TurnLock()
    lock.take()

    def wait():
        begin = time.monotonic()
        assert not lock.acquire(True, 0.01)
        return time.monotonic() - begin

    assert in_thread(wait) >= 0.01
    lock.release()


def test_it_is_given_back_where_an_exception_leaves():
    lock = TurnLock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert in_thread(lock.take)


def test_who_waits_gets_it_and_never_two_at_once():
    lock = TurnLock()
    inside = entered = 0
    together = False

    def work():
        nonlocal inside, entered, together
        for turn in range(200):
            if turn % 3 == 0:
                lock.acquire()
            elif turn % 3 == 1:
                while not lock.take():
                    time.sleep(0)
            else:
                while not lock.acquire(True, 0.0001):
                    pass
            inside += 1
            together |= inside != 1
            time.sleep(0)  # let the others try
            entered += 1
            inside -= 1
            lock.release()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
    finally:
        sys.setswitchinterval(interval)
    assert (entered, together) == (800, False)
    assert lock.take()
    lock.release()
