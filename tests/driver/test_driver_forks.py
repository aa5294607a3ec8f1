"""What is done before a fork comes before any lock of an adapter is taken for it, once a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from machine_speed import limit_s
from softhca.driver import forks

USES_THE_DEVICE = """
import os
import threading

from softhca.driver import forks

done = []


def use():
    with Context() as another:
        done.append(another.query_port(1).state)


def by_another_thread():
    user = threading.Thread(target=use, daemon=True)
    user.start()
    user.join(60)
    if not done:  # while this one has the adapter's lock, for ever
        os._exit(1)


forks.before_forks(by_another_thread)

from softhca.verbs.device import Context  # what it needs registers for forks only now, or later

with Context() as context:
    for times in (1, 2):
        child = os.fork()
        if not child:
            os._exit(0 if len(done) == times else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert len(done) == times
"""


def test_other_threads_may_use_a_device_before_a_fork() -> None:
    done = subprocess.run(
        [sys.executable, "-c", USES_THE_DEVICE], capture_output=True, text=True, timeout=limit_s(90)
    )
    assert (done.stderr, done.returncode) == ("", 0)


def test_each_fork_of_each_thread_is_prepared_for_once() -> None:
    told: list[int] = []

    def note() -> None:
        told.append(threading.get_ident())
        forks.prepare()

    def fork() -> None:
        child = os.fork()
        if not child:
            forks.prepare()  # what forks in the child is another fork
            os._exit(len(told))
        told.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    forks.before_forks(note)
    try:
        fork()
        me = threading.get_ident()
        assert told == [me, 2]
        forker = threading.Thread(target=fork)
        forker.start()
        forker.join()
        assert told == [me, 2, forker.ident, 4]
    finally:
        forks._calls.remove(note)
