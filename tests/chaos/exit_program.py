"""A program that ends while its threads are in calls, and closes nothing.  ``exit_program.py KIND SEED A B``:
its devices have the addresses A and B; it says ``ends`` just before.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable

FIRST_S, LAST_S = 0.01, 0.3
"""When it ends, after all threads have begun."""

kind, seed, *addresses = sys.argv[1:]
os.environ["SOFTHCA_DEVICES"] = f"a=udp:{addresses[0]},b=udp:{addresses[1]}"
dice = random.Random(int(seed))
kept: list[object] = []


def again_and_again(*calls: Callable[[], object]) -> None:
    """In a thread each, until the program ends; one whose call fails waits a little, for the program's end
    needs the interpreter's lock, too.
    """

    def go_on(call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except Exception:
                time.sleep(0.001)

    for call in calls:
        threading.Thread(target=go_on, args=[call], daemon=True).start()


def pairs_of_streams(count: int) -> list[tuple]:
    from softhca import sockets

    server = sockets.create_server((addresses[0], 0))
    kept.append(server)
    found = []
    for _ in range(count):
        one = sockets.create_connection(server.getsockname())
        found.append((one, server.accept()[0]))
    return found


def datagrams() -> None:
    """Three sockets, each sends to the next one; some receives have a time limit."""
    from softhca import sockets

    made = [sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) for _ in range(3)]
    kept.extend(made)
    for one in made:
        one.bind((addresses[0], 0))
        one.settimeout(dice.choice([None, 0.01]))
    for one, other in zip(made, [*made[1:], made[0]], strict=True):
        name, size = other.getsockname(), dice.choice([10, 5000])
        again_and_again(lambda one=one, name=name, size=size: one.sendto(bytes(size), name))
        again_and_again(lambda one=one: one.recv(10_000))


def connect_and_close() -> None:
    from softhca import sockets

    with (
        sockets.create_server((addresses[0], 0)) as server,
        sockets.create_connection(server.getsockname()),
        server.accept()[0],
    ):
        pass


def streams() -> None:
    """Three connections, one way each; others come and go meanwhile."""
    for one, other in pairs_of_streams(3):
        size = dice.choice([10, 50_000])
        again_and_again(lambda one=one, size=size: one.sendall(bytes(size)))
        again_and_again(lambda other=other: other.recv(100_000))
        kept.extend((one, other))
    again_and_again(connect_and_close)


def descriptors() -> None:
    """As `streams`; who receives waits by descriptor."""
    import select

    for one, other in pairs_of_streams(3):
        kept.extend((one, other))
        again_and_again(lambda one=one: one.sendall(bytes(20_000)))

        def receive(other=other) -> None:
            if select.select([other], [], [], 0.01)[0]:
                other.setblocking(False)
                other.recv(100_000)

        again_and_again(receive)


def channels() -> None:
    """Two channels, one way each."""
    import softhca

    listener = softhca.Channel.listen(f"{addresses[0]}:0")
    ends: list = []
    accepting = threading.Thread(target=lambda: ends.extend(listener.accept() for _ in range(2)))
    accepting.start()
    made = [softhca.Channel.connect(listener.address, patient=True) for _ in range(2)]
    accepting.join()
    kept.extend((listener, *made, *ends))
    again_and_again(listener.accept)
    for one, other in zip(made, ends, strict=True):
        again_and_again(lambda one=one: one.send(bytes(5000)), lambda other=other: other.recv(timeout=0.05))


def mailboxes() -> None:
    """Two pairs."""
    from softhca.mailbox import Mailbox, Terms
    from softhca.verbs.device import Context

    context, terms = Context(name="a"), Terms(slots=8, slot_bytes=96)
    for _ in range(2):
        here, there = Mailbox(context, terms), Mailbox(context, terms)
        here.join(there.offer)
        there.join(here.offer)
        kept.extend((here, there))
        again_and_again(lambda here=here: here.send(b"hello", timeout_s=0.05))
        again_and_again(lambda there=there: there.receive(0.05))


def verbs() -> None:
    """Polls, waits for events, and objects that come and go, of two devices."""
    from softhca.verbs import enums as e
    from softhca.verbs.cq import CQ, CompChannel
    from softhca.verbs.device import Context
    from softhca.verbs.mr import MR
    from softhca.verbs.pd import PD
    from softhca.verbs.qp import QP, QPCap, QPInitAttr

    for name in "ab":
        context = Context(name=name)
        channel, domain = CompChannel(context), PD(context)
        queue = CQ(context, 10, None, channel)

        def make(context=context, domain=domain) -> None:
            own = CQ(context, 10)
            pair = QP(domain, QPInitAttr(e.IBV_QPT_RC, scq=own, rcq=own, cap=QPCap(8, 8, 1, 1)))
            region = MR(domain, 4096, e.IBV_ACCESS_LOCAL_WRITE)
            if dice.random() < 0.5:
                for each in (pair, own, region):
                    each.close()

        again_and_again(lambda queue=queue: queue.poll(1), context.get_async_event, make)
        again_and_again(lambda channel=channel, queue=queue: channel.get_cq_event(queue))
        kept.extend((context, channel, domain, queue))


KINDS = {each.__name__: each for each in (datagrams, streams, descriptors, channels, mailboxes, verbs)}

if __name__ == "__main__":
    KINDS[kind]()
    time.sleep(dice.uniform(FIRST_S, LAST_S))
    os.write(1, b"ends\n")
