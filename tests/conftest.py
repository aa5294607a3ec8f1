"""What the tests of all packages share: addresses of their own, and two open devices in both modes."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from loopback_addresses import claimed_addresses
from softhca.machine import deferred_signals
from suite_plan import LONG, TESTS, pair_modes, places_of_tests, random_inputs, workers_of
from suite_schedule import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from suite_schedule import say_less

if TYPE_CHECKING:
    from softhca.verbs.device import Context

# How long an example takes is the machine's affair: what hangs is ended by pytest's own limit.
settings.register_profile("suite", deadline=None, max_examples=random_inputs(settings.default.max_examples))
settings.load_profile("suite")

# A shell (or nohup) that starts the tests in the background hands ignored signals on, to the programs that
# they start as well.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
DESCRIPTORS_LEFT = 64  # of objects in circles, until the collector comes by
DEFAULT_BUFFER_BYTES = 212_992
"""What Linux gives a process without privilege: the size that every rule about loss must bear."""


def pytest_configure(config: pytest.Config) -> None:
    """Of workers that all read the whole suite, each begins elsewhere: what one has read, another then finds
    as bytecode.  Making that of a test's source takes three times as long as all the rest of reading it.
    """
    say_less(config)
    said = getattr(config, "workerinput", None)
    if said is not None and config.args == config.getini("testpaths"):
        number = int(said["workerid"].removeprefix("gw"))
        config.args = places_of_tests(number, said["workercount"], config.getoption("ignore") or ())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What ``-n auto`` means."""
    return workers_of(len(os.sched_getaffinity(0)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Reading tests makes hundreds of thousands of objects, none of which is garbage; the collector, which
    would look for some again and again, took a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, and go on by name, in whatever order files were read."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: (ranks.get(item.path, len(LONG)), str(item.path)))


def pytest_collection_finish() -> None:
    """What has been read stays until the end: let no collection of garbage go through it again, neither those
    that tests ask for nor the interpreter's own."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def loopback_address() -> Callable[[], str]:
    """A function that gives another free loopback address (port 4791) each time."""
    addresses = claimed_addresses(os.getpid() * 251)  # where hardly anything is claimed
    return lambda: next(addresses)


@pytest.fixture(scope="module", autouse=True)
def own_device(loopback_address: Callable[[], str]) -> None:
    """Each file begins with one device, at an address that no other test has: neither those that earlier
    files have left, nor one that the adapter of another process of the tests serves too.  What else they have
    left, fifty objects a test that pytest keeps, no collection of garbage goes through again.
    """
    from softhca.driver import registry
    from softhca.runtime import devices

    for name in registry.names():
        devices.remove(name)
    gc.collect()
    gc.freeze()
    devices.add(f"softhca0=udp:{loopback_address()}")


@pytest.fixture(autouse=True)
def few_descriptors_are_left() -> Iterator[None]:
    """A test that leaves many descriptors open fails itself, and not one that comes long after it."""
    before = len(os.listdir("/proc/self/fd"))
    yield
    left = len(os.listdir("/proc/self/fd")) - before
    assert left <= DESCRIPTORS_LEFT, f"{left} descriptors were left open"


@dataclass
class VerbsPair:
    """Two open contexts on two devices of this process, with these ``names``; ``mode`` says where their
    adapters live, ``same_host`` whether they share memory."""

    client: Context
    server: Context
    mode: str
    same_host: bool = False
    names: tuple[str, str] = ("pair0", "pair1")


def meet(*names: str) -> None:
    """Let devices of this process that share memory on the host find each other, all in all directions."""
    from softhca.runtime import devices

    engines = [devices.find(name).engine for name in names]
    paths = []
    for engine in engines:
        with engine.loop.lock:
            paths += [
                engine.same_host.path_to(1, engine.link.gid, other.link.gid)
                for other in engines if other is not engine
            ]
    for engine in (*engines, *engines):
        with engine.loop.lock:
            while engine.same_host.poll():
                pass
    assert all(path is not None and path.alive for path in paths)


@contextlib.contextmanager
def virtual_pair() -> Iterator[VerbsPair]:
    """Two contexts on a network in virtual time; once they are closed, the adapters must be empty."""
    from softhca.adapter.resources import Kind
    from softhca.testing import Network

    with Network(polls_pass_time=True) as network:
        nodes = [network.add(name=name) for name in ("pair0", "pair1")]
        pair = VerbsPair(*(node.context() for node in nodes), "virtual")
        yield pair
        pair.client.close()
        pair.server.close()
    left = [kind for kind in Kind for node in nodes if node.adapter.resources.count(kind)]
    assert not left


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The suite of the verbs also runs in virtual time, but for tests that start other programs, and need an
    address for these.
    """
    if "verbs_pair" in metafunc.fixturenames:
        own = inspect.signature(metafunc.function).parameters
        suite = metafunc.definition.path.parent.name == "suite"
        modes = pair_modes(suite, "loopback_address" in own, metafunc.definition.nodeid)
        metafunc.parametrize("verbs_pair", modes, indirect=True)


NAMES = ("pair0", "pair1")
KEPT_NAMES = ("kept0", "kept1")
SHARING = ("suite", "mailbox", "test_runtime_pair.py")
"""Folders and files whose tests share adapter processes, as they give no device a name and kill none."""


@contextlib.contextmanager
def open_devices(
    names: tuple[str, str], mode: str, address: Callable[[], str], same_host: bool = False
) -> Iterator[None]:
    """Devices with default socket buffers, held open, so that contexts that close end no adapter."""
    from softhca.driver import registry
    from softhca.runtime import devices

    options = f"?buffer={DEFAULT_BUFFER_BYTES}&same_host={int(same_host)}"
    devices.add(",".join(f"{name}=udp:{address()}{options}" for name in names), mode)
    try:
        observers = [registry.open_device(name) for name in names]
        try:
            yield
        finally:
            for observer in observers:
                observer.close()
    finally:
        for name in names:
            devices.remove(name)


def left_in(names: tuple[str, str]) -> list[dict[str, int]]:
    """What the adapters of these devices still hold of each kind; of one that has ended, nothing is known."""
    from softhca.runtime import devices

    held = [devices.find(name).resources() for name in names]
    return [
        {kind: count for kind, count in counts.items() if count} if counts else {"an adapter": 0}
        for counts in held
    ]


@pytest.fixture(scope="module")
def kept_processes(loopback_address: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Opens two devices whose adapters are processes, which the tests of a file share: to start them takes
    longer than most tests.  Where a test fails and leaves something behind, the next has new ones.
    """
    opened: list[contextlib.ExitStack] = []

    def ready() -> None:
        if opened and any(left_in(KEPT_NAMES)):
            opened.pop().close()
        if not opened:
            stack = contextlib.ExitStack()
            stack.enter_context(open_devices(KEPT_NAMES, "process", loopback_address))
            opened.append(stack)

    yield ready
    for stack in opened:
        stack.close()


@pytest.fixture
def verbs_pair(
    request: pytest.FixtureRequest,
    loopback_address: Callable[[], str],
    kept_processes: Callable[[], None],
) -> Iterator[VerbsPair]:
    """Two devices with default socket buffers; once they are closed, the adapters must be empty."""
    from softhca.verbs.device import Context

    if request.param == "virtual":
        with virtual_pair() as pair:
            yield pair
        return
    same_host = request.param == "same_host"
    mode = "embedded" if same_host else request.param
    names = NAMES
    with contextlib.ExitStack() as stack:
        if mode == "process" and not {request.path.parent.name, request.path.name}.isdisjoint(SHARING):
            names = KEPT_NAMES
            kept_processes()
        else:
            stack.enter_context(open_devices(names, mode, loopback_address, same_host))
        if same_host:
            meet(*names)
        pair = VerbsPair(*(Context(name=name) for name in names), mode, same_host, names)
        yield pair
        pair.client.close()
        pair.server.close()
        left = left_in(names)
        assert not any(left), left


@pytest.fixture(autouse=True)
def no_section_is_left() -> Iterator[None]:
    """A section of deferred signals that nobody ended would keep Ctrl-C from all that follows."""
    yield
    left = deferred_signals.within()
    while deferred_signals.within():
        deferred_signals.end()
    assert not left
