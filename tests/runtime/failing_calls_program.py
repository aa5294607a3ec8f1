"""One operation again and again, each time with another system call failing: the first, the second, until it
needs none more.  ``failing_calls.c`` is preloaded.

``python failing_calls_program.py OPERATION``; it prints what is wrong, and then how many calls there were.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from machine_speed import limit_s
from softhca import sockets
from softhca.channels import Channel, ChannelError
from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.mailbox import Mailbox, MailboxError
from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, AHAttr, GlobalRoute
from softhca.verbs.base import close_deferred
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.device_memory import DM, AllocDmAttr
from softhca.verbs.mr import MR, MW
from softhca.verbs.mr_kinds import DMMR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.qp import QP, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr

SHIM = ctypes.CDLL(None)
SHIM.disarm.restype = ctypes.c_char_p
LIMIT_S = limit_s(10)
LOOK_S, SETTLED_S = 0.3, limit_s(3)
MOST = 400
(NAME,) = registry.names()
ALLOWED = (OSError, DriverError, PyverbsError, MailboxError)
TOLD = (errno.ENOMEM, errno.EMFILE, errno.ENOSPC, errno.EBADF, errno.EIO)


class Kept:
    """What an operation stands on."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(4)
        self._context: Any = None
        list(self.threads.map(lambda _: time.sleep(0.01), range(8)))

    @property
    def context(self) -> Context:
        """An open device."""
        if self._context is None:
            self._context = Context(name=NAME)
        return self._context  # type: ignore[no-any-return]


def opening(kept: Kept) -> None:
    Context(name=NAME).close()


def verbs(kept: Kept) -> None:
    context = kept.context
    with contextlib.ExitStack() as made:
        pd = made.enter_context(PD(context))
        made.enter_context(MR(pd, 8192, 1))
        made.enter_context(MR(pd, access=1, buffer=bytearray(10_000)))
        made.enter_context(MW(pd, 1))
        channel = made.enter_context(CompChannel(context))
        assert channel.fd != context.async_fd
        cq = made.enter_context(CQ(context, 100, None, channel))
        made.enter_context(SRQ(pd, SrqInitAttr(SrqAttr(100, 1))))
        caps = QPCap(max_send_wr=10, max_recv_wr=10, max_send_sge=1, max_recv_sge=1)
        for kind in (e.IBV_QPT_RC, e.IBV_QPT_UD):
            made.enter_context(QP(pd, QPInitAttr(kind, scq=cq, rcq=cq, cap=caps)))
        route = GlobalRoute(context.query_gid(1, 0), sgid_index=0)
        made.enter_context(AH(pd, attr=AHAttr(gr=route, is_global=1, port_num=1)))


def device_memory(kept: Kept) -> None:
    with PD(kept.context) as pd, DM(kept.context, AllocDmAttr(length=5000)) as memory:
        DMMR(pd, 4096, 1 << 5, memory, 0).close()


def _made(kind: int, by_cm: bool) -> sockets.socket:
    one = sockets.socket(sockets.AF_INET, kind)
    one.settings = sockets.Settings(by_cm=by_cm, connect_s=LIMIT_S)
    one.settimeout(LIMIT_S)
    return one


def _streams(kept: Kept, by_cm: bool) -> None:
    with _made(sockets.SOCK_STREAM, by_cm) as server, _made(sockets.SOCK_STREAM, by_cm) as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        asking = kept.threads.submit(client.connect, server.getsockname())
        try:
            asking.result(LIMIT_S)
        except OSError:
            server.settimeout(0)  # TCP's half of it may wait there
            raise
        with server.accept()[0] as accepted:
            accepted.settimeout(LIMIT_S)
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"
            buffer = sockets.PageBuffer(1 << 16)
            accepted.sendall(bytes(1 << 16))
            assert client.recv_into(buffer)
            buffer.close()


def streams(kept: Kept) -> None:
    _streams(kept, False)


def streams_by_cm(kept: Kept) -> None:
    _streams(kept, True)


def datagrams(kept: Kept) -> None:
    with _made(sockets.SOCK_DGRAM, False) as one, _made(sockets.SOCK_DGRAM, False) as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        one.sendto(b"x", other.getsockname())
        assert other.recv(1) == b"x"


def detached(kept: Kept) -> None:
    """Descriptors that programs use as the kernel's."""
    with _made(sockets.SOCK_STREAM, False) as server, _made(sockets.SOCK_STREAM, False) as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
        with server.accept()[0] as accepted:
            number = client.detach()
            try:
                os.write(number, b"x")
                accepted.settimeout(LIMIT_S)
                assert accepted.recv(1) == b"x"
            finally:
                os.close(number)
    with _made(sockets.SOCK_DGRAM, False) as one:
        one.bind(("127.0.0.1", 0))
        os.close(one.detach())


def channels(kept: Kept) -> None:
    assert kept.context.is_open  # so that the device is
    with Channel.listen("127.0.0.1:0") as listener:
        accepting = kept.threads.submit(listener.accept, LIMIT_S)
        try:
            client = Channel.connect(listener.address, timeout=LIMIT_S)
        except ChannelError:
            listener.close()
            with contextlib.suppress(*ALLOWED):
                accepting.result(LIMIT_S).kill()
            raise
        with contextlib.closing(client):
            server = accepting.result(LIMIT_S)
            with contextlib.closing(server):
                server.share("box", bytearray(64), "rwa")
                box = client.remote("box", timeout=LIMIT_S)
                box.write(b"x" * 8)
                assert box.read(8) == b"x" * 8
                receiving = kept.threads.submit(server.recv, timeout=LIMIT_S)
                client.send(bytes(1 << 20), timeout=LIMIT_S)
                assert len(receiving.result(LIMIT_S)) == 1 << 20


def mailboxes(kept: Kept) -> None:
    with Mailbox(kept.context) as one, Mailbox(kept.context) as other:
        one.join(other.offer)
        other.join(one.offer)
        one.send(b"x", timeout_s=LIMIT_S)
        assert other.receive(timeout_s=LIMIT_S) == b"x"


ALONE = (opening, verbs, device_memory, mailboxes)
TOGETHER = (streams, streams_by_cm, datagrams, detached, channels)
OPERATIONS: dict[str, Callable[[Kept], None]] = {each.__name__: each for each in (*ALONE, *TOGETHER)}


def there() -> Counter[str]:
    """Descriptors by what they are, mapped files, and what the adapter holds."""
    gc.collect()
    close_deferred()
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found["descriptor " + re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{name}"))] += 1
    with open("/proc/self/maps") as lines:
        for line in lines:
            words = line.split(maxsplit=5)
            if len(words) > 5 and words[5].startswith("/memfd"):
                found["mapping " + words[5].strip()] += 1
    found.update({f"adapter's {kind}": count for kind, count in devices.find(NAME).resources().items()})
    return found


def more_than(before: Counter[str], limit_s: float) -> Counter[str]:
    """What there is more of, once that has come to rest."""
    end_s = time.monotonic() + limit_s
    while (more := there() - before) and time.monotonic() < end_s:
        time.sleep(0.01)
    return more


def is_told(error: Exception) -> bool:
    """Whether it is an error that programs expect, and speaks of no other than its errno says."""
    code = getattr(error, "error_code", None) or getattr(error, "errno", None)
    others = [os.strerror(each) for each in TOLD if each != code]
    return isinstance(error, ALLOWED) and not any(each in str(error) for each in others)


def one_round(kept: Kept, operation: Callable[[Kept], None], number: int) -> tuple[str, str]:
    """Which call has failed, if there were so many; and how the operation has ended."""
    said = ""
    SHIM.arm(number)
    try:
        operation(kept)
    except Exception as error:
        said = f"{'' if is_told(error) else '!'}{type(error).__name__}: {error}"
    finally:
        name = SHIM.disarm()
    return (name or b"").decode(), said


def main(name: str) -> int:
    kept, operation = Kept(), OPERATIONS[name]
    operation(kept)
    operation(kept)
    wrong = 0
    for number in range(MOST):
        before = there()
        call, said = one_round(kept, operation, number)
        if more_than(before, LOOK_S):  # is it made once and stays, or comes with each such round?
            before = there()
            one_round(kept, operation, number)
            if more := more_than(before, SETTLED_S):
                wrong += 1
                print(f"{call} fails, call {number}, {said or 'no error'}: left are {dict(more)}")
        if said.startswith("!") or (said and not call):
            wrong += 1
            print(f"{call or 'nothing'} fails, call {number}: {said}")
        if "-v" in sys.argv:
            print(number, call, said[:150], flush=True)
        if not call:
            print(f"{number} calls, {wrong} wrong")
            return wrong
    print(f"after {MOST} calls it has not come to an end")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) != 0)
