"""Ownership: closing a parent closes its children, youngest first; close is idempotent; dropping closes."""

import errno
import gc
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from verbs_fake_driver import OTHER_GID, FakeDriver, FakeRegistry

from machine_speed import limit_s
from softhca.verbs import base
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from suite_plan import random_inputs


@pytest.fixture(scope="module", autouse=True)
def what_was_before_stays() -> Iterator[None]:
    """Many collections follow: let them not go through all that earlier tests have left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def world(context: Context) -> dict[str, base.Resource]:
    """One of everything, in the order in which things depend on each other."""
    pd = PD(context)
    channel = CompChannel(context)
    cq = CQ(context, 10, channel=channel)
    srq = SRQ(pd, SrqInitAttr(SrqAttr(5)))
    qp = QP(pd, QPInitAttr(qp_type=2, scq=cq, rcq=cq, srq=srq))
    mr = MR(pd, 4096, 1)
    ah = AH(pd, attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=GID.from_bytes(OTHER_GID))))
    return {"pd": pd, "channel": channel, "cq": cq, "srq": srq, "qp": qp, "mr": mr, "ah": ah}


def test_closing_a_context_closes_all_and_then_the_device(registry: FakeRegistry) -> None:
    context = Context(name="fake0")
    made = world(context)
    driver = registry.drivers[0]
    context.close()
    assert driver.live == []
    assert driver.calls[-1] == ("close",)
    assert not driver.alive
    for each in made.values():
        with pytest.raises(PyverbsUserError, match="closed"):
            each._require_open()


def test_closing_a_pd_closes_what_it_owns_youngest_first(context: Context, driver: FakeDriver) -> None:
    made = world(context)
    made["pd"].close()
    assert [call[0] for call in driver.calls] == [
        "destroy_ah",
        "dereg_mr",
        "free",
        "destroy_qp",
        "destroy_srq",
        "dealloc_pd",
    ]
    assert [kind for kind, _ in driver.live] == ["cq"]


@pytest.mark.parametrize("parent", ["cq", "srq", "channel"])
def test_closing_a_queue_closes_the_qps_that_use_it_first(
    context: Context, driver: FakeDriver, parent: str
) -> None:
    made = world(context)
    made[parent].close()
    assert driver.calls[0][0] == "destroy_qp"
    assert ("pd", made["pd"].number) in driver.live


def test_close_is_idempotent(context: Context, driver: FakeDriver) -> None:
    made = world(context)
    for _ in range(2):
        for each in reversed(made.values()):
            each.close()
    assert driver.live == []
    calls = [call for call in driver.calls if call[0] != "free"]
    assert len(calls) == len(set(calls)) == 6


def test_with_closes(registry: FakeRegistry) -> None:
    with Context(name="fake0") as context, PD(context) as pd, MR(pd, 10, 1):
        assert [kind for kind, _ in registry.drivers[0].live] == ["pd", "mr"]
    assert registry.drivers[0].live == []


def test_dropping_the_last_reference_closes(context: Context, driver: FakeDriver) -> None:
    pd = PD(context)
    mr = MR(pd, 10, 1)
    del mr
    assert [kind for kind, _ in driver.live] == ["pd"]
    del pd
    assert driver.live == []


@pytest.mark.parametrize("way", ["dropped", "closed", "cycles"])
def test_objects_may_go_in_any_order(context: Context, driver: FakeDriver, way: str) -> None:
    """The device gets a user's end before that of what it uses, or refuses: nothing is ever refused."""
    first = {"qp": ("srq", "cq", "pd"), "mr": ("pd",), "ah": ("pd",), "srq": ("pd",)}
    for seed in range(random_inputs(30)):
        made = world(context)
        order = random.Random(seed).sample(sorted(made), len(made))
        driver.calls.clear()
        while order:
            each = made.pop(order.pop())
            if way == "closed":
                each.close()
            elif way == "cycles":
                ring: list[object] = [each]
                ring.append(ring)
                del ring
        del each
        gc.collect()
        base.close_deferred()
        assert driver.live == []
        ends = [call[0].rpartition("_")[2] for call in driver.calls if call[0] != "free"]
        assert sorted(ends) == ["ah", "cq", "mr", "pd", "qp", "srq"]
        assert all(ends.index(user) < ends.index(used) for user in first for used in first[user])


def test_a_child_keeps_its_parent_alive(context: Context, driver: FakeDriver) -> None:
    mr = MR(PD(context), 10, 1)
    gc.collect()
    assert [kind for kind, _ in driver.live] == ["pd", "mr"]
    del mr
    assert driver.live == []


def test_a_refused_close_leaves_the_object_open(context: Context, driver: FakeDriver) -> None:
    pd = PD(context)
    mr = MR(pd, 10, 1)
    driver.refusals["dereg_mr"] = errno.EBUSY
    with pytest.raises(PyverbsRDMAError) as caught:
        pd.close()
    assert caught.value.error_code == errno.EBUSY
    assert mr.lkey
    assert pd.number
    pd.close()
    assert driver.live == []


def test_a_failed_creation_leaves_nothing_behind(context: Context, driver: FakeDriver) -> None:
    pd = PD(context)
    buffer = bytearray(100)
    driver.refusals["reg_mr"] = errno.ENOMEM
    with pytest.raises(PyverbsRDMAError):
        MR(pd, 100, 1, buffer=buffer)
    buffer.append(0)  # not locked any more
    driver.refusals["reg_mr"] = errno.ENOMEM
    with pytest.raises(PyverbsRDMAError):
        MR(pd, 100, 1)
    assert ("free", 100) in driver.calls
    pd.close()
    assert driver.live == []


def test_when_the_device_is_dead_close_asks_it_nothing(context: Context, driver: FakeDriver) -> None:
    made = world(context)
    driver.alive = False
    context.close()
    assert [call[0] for call in driver.calls] == ["free", "close"]
    with pytest.raises(PyverbsUserError):
        made["mr"].lkey  # noqa: B018


def cycle(made: dict[str, base.Resource]) -> None:
    made["self"] = made  # type: ignore[assignment]


def test_what_the_collector_finds_is_closed_at_the_next_call_and_not_in_the_collection(
    context: Context, driver: FakeDriver
) -> None:
    gc.collect()
    made = world(context)
    cycle(made)
    del made
    before = len(driver.live)
    gc.collect()
    assert len(driver.live) == before == 6
    context.query_device()
    assert driver.live == []
    names = [call[0] for call in driver.calls]
    assert names.index("destroy_qp") < names.index("destroy_srq") < names.index("dealloc_pd")


class Interrupt(Exception):
    """What the handler of a signal raises."""


def test_an_interrupt_during_a_collection_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler of a signal that comes while the collector is at work runs in the first function of Python
    after that; were it one that the collector calls, its exception would be dropped."""

    def handler(*_: object) -> None:
        raise Interrupt

    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    others = [each for each in gc.callbacks if getattr(each, "__self__", None) is not base._phases]
    for each in others:
        gc.callbacks.remove(each)
    heap = [[] for _ in range(300_000)]  # type: ignore[var-annotated]  # a collection takes some ms
    before = signal.signal(signal.SIGVTALRM, handler)
    seen = 0
    try:
        for _ in range(20):
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.001)
                gc.collect()
                while not dropped:
                    pass
            except Interrupt:
                seen += 1
    finally:
        signal.signal(signal.SIGVTALRM, before)
        gc.callbacks += others
    assert not dropped
    assert seen == 20
    assert len(heap) == 300_000


def test_a_parent_that_closes_waits_for_deferred_closes(context: Context, driver: FakeDriver) -> None:
    pd = PD(context)
    holder: dict[str, object] = {"mr": MR(pd, 10, 1)}
    holder["self"] = holder
    del holder
    gc.collect()
    pd.close()
    assert driver.live == []


def test_polling_carries_deferred_closes_out(context: Context, driver: FakeDriver) -> None:
    pd, cq = PD(context), CQ(context, 1)
    holder: dict[str, object] = {"mr": MR(pd, 10, 1)}
    holder["self"] = holder
    del holder
    gc.collect()
    assert ("mr" in dict(driver.live)) is True
    cq.poll()
    assert ("mr" in dict(driver.live)) is False


def test_a_dropped_object_that_cannot_be_closed_is_only_logged(
    context: Context, driver: FakeDriver, caplog: pytest.LogCaptureFixture
) -> None:
    pd = PD(context)
    mr = MR(pd, 10, 1)
    driver.refusals["dereg_mr"] = errno.EIO
    del mr
    assert "dereg_mr refused" in caplog.text


DROPPED = """
import gc
from softhca.driver import registry
from softhca.testing import Network
from softhca.verbs import base
from softhca.verbs.cq import CQ, CQEX, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr

def leave():
    network = Network()
    node = network.add(name="dropped0")
    registry.register("dropped0", node.open)
    context = Context(name="dropped0")
    registry.unregister("dropped0")
    pd = PD(context)
    channel = CompChannel(context)
    cq = CQ(context, 10, None, channel, 0)
    held = [network, context, channel, cq, CQEX(context), MR(pd, 4096, 1), MR(pd, 1 << 20, 7)]
    held += [SRQ(pd, SrqInitAttr(SrqAttr(max_wr=4))), QP(pd, QPInitAttr(scq=cq, rcq=cq, cap=QPCap(4, 4)))]
    held.append(held)

gc.disable()
leave()
gc.collect()
assert len(base.deferred) > 5
base.close_deferred()
gc.collect()
base.close_deferred()
"""


def test_who_closes_what_another_thread_is_closing_goes_on_when_it_is_closed(
    context: Context, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, order = threading.Event(), []

    class Told:
        """The lock of who closes."""

        def __init__(self) -> None:
            self._lock = threading.RLock()
            self._is_owned = self._lock._is_owned  # type: ignore[attr-defined]

        def __enter__(self) -> None:
            if threading.current_thread() is thread:
                waits.set()
            self._lock.acquire()

        def __exit__(self, *error: object) -> None:
            self._lock.release()

    def second() -> None:
        pd.close()
        order.append("second")

    def destroy() -> None:
        thread.start()
        assert waits.wait(limit_s(20))
        destroyed()
        order.append("first")

    pd = PD(context)
    base._closing_locks[id(pd)] = Told()
    destroyed = pd._destroy
    monkeypatch.setattr(PD, "_destroy", lambda _: destroy())
    thread = threading.Thread(target=second, daemon=True)
    pd.close()
    thread.join(limit_s(20))
    assert order == ["first", "second"]
    assert [call[0] for call in driver.calls].count("dealloc_pd") == 1
    assert id(pd) not in base._closing_locks


def test_a_close_that_was_interrupted_is_done_again(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device may have destroyed the object: then there is none of that number any more."""
    pd, refused = PD(context), PyverbsRDMAError("no such PD", errno.EINVAL)
    outcomes: list[BaseException] = [refused, Interrupt(), PyverbsRDMAError("in use", errno.EBUSY), refused]

    def destroy(_: PD) -> None:
        raise outcomes.pop(0)

    with monkeypatch.context() as patched:
        patched.setattr(PD, "_destroy", destroy)
        with pytest.raises(PyverbsRDMAError, match="no such PD"):
            pd.close()
        with pytest.raises(Interrupt):
            pd.close()
        with pytest.raises(PyverbsRDMAError, match="in use"):
            pd.close()
        assert pd.is_open
        context.close()
    assert not pd.is_open
    assert not outcomes


def test_a_context_whose_close_was_interrupted_leaves_its_device_when_it_is_closed_again(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(name="fake0")

    def released(_: Context) -> None:
        raise Interrupt

    with monkeypatch.context() as patched:
        patched.setattr(Context, "_released", released)
        with pytest.raises(Interrupt):
            context.close()
    driver = registry.drivers[0]
    assert context.is_open
    assert driver.alive
    context.close()
    assert not context.is_open
    assert not driver.alive
    assert [call[0] for call in driver.calls].count("close") == 1


def test_a_device_that_is_dropped_with_all_that_is_on_it_is_closed() -> None:
    """Where its adapter is in a circle with it: the collector finalizes the memory of its rings, too, before
    what it has found is closed.
    """
    done = subprocess.run(
        [sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=limit_s(60),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_a_signal_handler_has_kept_from_being_begun_is_dropped_in_silence() -> None:
    """It raised in `__new__`: the program is told that, and nothing else on its standard error."""
    object.__new__(PD).__del__()
