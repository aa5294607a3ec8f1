"""A program that ends, or closes its context, while daemon threads are inside its calls: MODE END CALLS."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError

THREADS = 4


def main(mode: str, end: str, calls: str) -> None:
    devices.add(f"own=udp:127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}.9?same_host=0", mode)
    context = Context(name="own")
    pd = PD(context)
    mr = MR(pd, 1 << 20, e.IBV_ACCESS_LOCAL_WRITE)
    channel = CompChannel(context)
    cq = CQ(context, 16, channel=channel)
    kinds: dict[str, Callable[[], object]] = {
        "poll": lambda: cq.poll(4),
        "wait": lambda: channel.get_cq_event(cq),
        "event": context.get_async_event,
        "read": lambda: mr.read(1 << 20, 0),
        "write": lambda: mr.write(bytes(1 << 20), 1 << 20),
        "query": context.query_device,
        "arm": cq.req_notify,
        "make": lambda: CQ(context, 300).close(),
    }
    names = list(kinds) if calls == "all" else [calls] * THREADS
    begun = threading.Barrier(len(names) + 1)

    def run(call: Callable[[], object]) -> None:
        begun.wait()
        while True:
            with contextlib.suppress(PyverbsError):  # once it is closed, as long as the program lives
                call()

    for name in names:
        threading.Thread(target=run, args=(kinds[name],), daemon=True).start()
    begun.wait()
    context.query_device()
    if end == "close":
        context.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
