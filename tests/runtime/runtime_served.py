"""An adapter that serves others from a thread of this process, and waiting for what is to happen."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from machine_speed import limit_s
from softhca.runtime import listening_name
from softhca.runtime.assembly import assemble, same_host_of
from softhca.runtime.clients import Clients
from softhca.runtime.embedded import EmbeddedAdapter
from softhca.runtime.server import AdapterServer
from softhca.runtime.specification import parse_one

BOUND_S = limit_s(20)


def until(condition: Callable[[], object]) -> None:
    """Return once ``condition()`` holds; AssertionError where it does not within a bound."""
    pause = threading.Event()
    for _ in range(int(BOUND_S / 0.002)):
        if condition():
            return
        pause.wait(0.002)
    raise AssertionError("nothing happened")


def readable(descriptor: int) -> bool:
    """Whether ``descriptor`` can be read now; of any number, which select() does not know."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


@contextmanager
def serving(address: str, name: str = "here", same_host: bool = False) -> Iterator[AdapterServer]:
    """A server on ``address`` that listens; it has ended afterwards.  ``same_host``: it shares memory."""
    specification = parse_one(f"{name}=udp:{address}?same_host={int(same_host)}")
    adapter, link = assemble(specification)
    shared = same_host_of(specification, adapter, [link], packets_alone=True)
    made = AdapterServer(adapter, (link,), None, f"@softhca-{name}-{os.getpid()}", stay=True,
                         same_host=shared)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(BOUND_S)
        assert not thread.is_alive()


@contextmanager
def embedding(address: str, name: str = "here") -> Iterator[Clients]:
    """What an adapter that is embedded here serves others by; it has ended afterwards."""
    path = f"@softhca-{name}-{os.getpid()}"
    bound = listening_name.take(path)
    engine = EmbeddedAdapter(parse_one(f"{name}=udp:{address}?same_host=0"), path, bound)
    own = engine.attach()
    assert own is not None
    assert engine.clients is not None
    try:
        yield engine.clients
        assert engine.alive
    finally:
        own.close()
        engine.close()
