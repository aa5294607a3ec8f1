"""What tests of real traffic share: two connected ends, and waiting with a bound.

Every wait is a loop of polls that ends with `Late` after `BOUND_S` by the monotonic clock; nothing sleeps.
"""

import time
from collections.abc import Callable

from machine_speed import limit_s
from softhca.testing.verbs import VerbsEnd, connect, make_end
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ, WC

BOUND_S = limit_s(10.0)
PATTERN = bytes(range(251))


class Late(AssertionError):
    """Something did not happen within `BOUND_S`."""


def connected(
    pair: object, kind: int = e.IBV_QPT_RC, changes: dict | None = None, **arguments: object
) -> tuple[VerbsEnd, VerbsEnd]:
    """Two connected ends on the two contexts of a ``verbs_pair``."""
    client = make_end(pair.client, kind, **arguments)
    server = make_end(pair.server, kind, **arguments)
    connect(client, server, **(changes or {}))
    return client, server


def wait_until(done: Callable[[], object], *ends: VerbsEnd) -> None:
    """Drive the ends' devices until ``done()``."""
    deadline = time.monotonic() + BOUND_S
    while not done():
        for end in ends:
            end.context.progress()
        if time.monotonic() > deadline:
            raise Late(f"nothing within {BOUND_S} s")


def poll(cq: CQ, count: int, *ends: VerbsEnd) -> list[WC]:
    """Exactly ``count`` completions of ``cq``, driving the ends' devices meanwhile."""
    found: list[WC] = []

    def enough() -> bool:
        found.extend(cq.poll(count - len(found))[1])
        return len(found) >= count

    wait_until(enough, *ends)
    return found


def settle(cq: CQ, client: VerbsEnd, server: VerbsEnd) -> list[WC]:
    """What is in ``cq`` once both devices have dealt with all that was sent before; to show that nothing
    comes.

    Messages between two other QPs are the mark: what one device sends to the other stays in its order.  They
    go to and fro twice, so that answers to what was under way have been dealt with, too.
    """
    here, there = make_end(client.context), make_end(server.context)
    connect(here, there)
    for sender, receiver in 2 * ((here, there), (there, here)):
        receiver.receive(1)
        sender.send(length=1)
        assert poll(receiver.recv_cq, 1, here, there)[0].status == e.IBV_WC_SUCCESS
        assert poll(sender.send_cq, 1, here, there)[0].status == e.IBV_WC_SUCCESS
    return cq.poll(16)[1]


def pattern(length: int) -> bytes:
    """``length`` bytes whose period fits no power of two."""
    return (PATTERN * (length // len(PATTERN) + 1))[:length]
