"""One operation again and again, each time with another system call failing: the first, the second, until it
needs none more.  ``failing_calls.c`` is preloaded; or, where ``SHIM`` names it, it is preloaded into the
adapter process alone, which this program starts, and only calls of that one fail.  ``TIMES``: so many calls
fail in a row (1).

``python failing_calls_program.py OPERATION``; it prints what is wrong, and then how many calls there were.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import mmap
import os
import re
import select
import struct
import sys
import tempfile
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
from softhca.testing.verbs import attributes, connect, make_end
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, AHAttr, GlobalRoute
from softhca.verbs.base import close_deferred
from softhca.verbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.device_memory import DM, AllocDmAttr
from softhca.verbs.mr import MR, MW
from softhca.verbs.mr_kinds import DMMR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.qp import QP, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr

LIMIT_S = limit_s(10)
LOOK_S, SETTLED_S = 0.3, limit_s(3)
MOST = 400
TIMES = int(os.environ.get("TIMES", 1))
(NAME,) = registry.names()
ALLOWED = (OSError, DriverError, PyverbsError, MailboxError)
TOLD = (errno.ENOMEM, errno.EMFILE, errno.ENOSPC, errno.EBADF, errno.EIO)


class Own:
    """Calls of this process fail."""

    pid = os.getpid()

    def __init__(self) -> None:
        self._shim = ctypes.CDLL(None)
        self._shim.disarm.restype = ctypes.c_char_p

    def arm(self, number: int) -> None:
        """The call ``number`` from now on fails, and TIMES - 1 behind it."""
        self._shim.arm(ctypes.c_long(number), ctypes.c_long(TIMES))

    def disarm(self) -> str:
        """None fails any more; which one did, empty: there were fewer."""
        return (self._shim.disarm() or b"").decode()

    def is_well(self) -> bool:
        """Whether others are served as before."""
        return True


class Adapter:
    """Calls of the adapter process fail, where another client stays with a queue pair connected to itself."""

    def __init__(self, shim: str) -> None:
        with tempfile.NamedTemporaryFile() as turns:
            turns.write(struct.pack("qq48s", 0, 0, b""))
            turns.flush()
            self._turns = mmap.mmap(turns.fileno(), 64)
            os.environ.update(LD_PRELOAD=shim, FAILING_CALLS=turns.name)
            self._end = make_end(Context(name=NAME), size=4096, entries=8)
            del os.environ["LD_PRELOAD"], os.environ["FAILING_CALLS"]
        self.pid = int(self._end.context._driver.session.channel.resources()["pid"])
        self._end.qp.to_rts(attributes(self._end, self._end, 1, 1))

    def arm(self, number: int) -> None:
        """`Own.arm`."""
        self._turns[:] = struct.pack("qq48s", number, -TIMES, b"")

    def disarm(self) -> str:
        """`Own.disarm`."""
        self._turns[:16] = bytes(16)
        return self._turns[16:].rstrip(b"\0").decode()

    def is_well(self) -> bool:
        """`Own.is_well`."""
        self._end.send(e.IBV_WR_RDMA_WRITE, 100, to=(self._end.mr.rkey, self._end.mr.buf))
        end_s = time.monotonic() + LIMIT_S
        while not (found := self._end.send_cq.poll(1)[1]) and time.monotonic() < end_s:
            time.sleep(0.001)
        return [each.status for each in found] == [e.IBV_WC_SUCCESS]


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


def groups(kept: Kept) -> None:
    """A group that the adapter's link becomes a member of."""
    place, group = devices.find(NAME).specification.place, "239.9.8.7"
    with contextlib.ExitStack() as made:
        channel = made.enter_context(contextlib.closing(CMEventChannel()))
        one = made.enter_context(contextlib.closing(CMID(creator=channel, port_space=ce.RDMA_PS_UDP)))
        one.bind_addr(AddrInfo(src=place, port_space=ce.RDMA_PS_UDP))
        one.resolve_addr(AddrInfo(src=place, dst=group))
        came(channel, ce.RDMA_CM_EVENT_ADDR_RESOLVED)
        one.create_qp(QPInitAttr(e.IBV_QPT_UD, cap=QPCap(max_recv_wr=4)))
        one.join_multicast(addr=AddrInfo(src=group))
        came(channel, ce.RDMA_CM_EVENT_MULTICAST_JOIN)


def meeting(kept: Kept) -> None:
    """Another adapter of this host, which this process embeds, and which shares memory with this one."""
    first, *rest = devices.find(NAME).specification.place.split(".")
    devices.add(f"other=udp:{first}.{'.'.join(reversed(rest))}", "embedded")
    try:
        with Context(name="other") as other:
            near, far = make_end(kept.context, size=8192, entries=8), make_end(other, size=8192, entries=8)
            connect(near, far)
            for one, two in ((near, far), (far, near)):
                one.send(e.IBV_WR_RDMA_WRITE, 8192, to=(two.mr.rkey, two.mr.buf))
                end_s = time.monotonic() + LIMIT_S
                while not (found := one.send_cq.poll(1)[1]) and time.monotonic() < end_s:
                    time.sleep(0.001)
                if (ended := [each.status for each in found]) != [e.IBV_WC_SUCCESS]:
                    raise AssertionError(f"no success, but {ended}")
            near.pd.close()
            near.send_cq.close()
            near.recv_cq.close()
    finally:
        devices.remove("other")


def came(channel: CMEventChannel, kind: int) -> CMEvent:
    """The next event of RDMA CM, of that kind; OSError where it is another, or does not come."""
    looking = select.poll()
    looking.register(channel.fd, select.POLLIN)
    if not looking.poll(LIMIT_S * 1000):
        raise AssertionError(f"no event, where {kind} should come")
    event = CMEvent(channel)
    if event.event_type != kind:
        raise OSError(event.status, event.event_str())
    return event


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


ALONE = (opening, verbs, device_memory, mailboxes, groups, meeting)
TOGETHER = (streams, streams_by_cm, datagrams, detached, channels)
OPERATIONS: dict[str, Callable[[Kept], None]] = {each.__name__: each for each in (*ALONE, *TOGETHER)}


def there(pid: int) -> Counter[str]:
    """Of a process: descriptors by what they are, mapped files, and what the adapter holds."""
    gc.collect()
    close_deferred()
    found: Counter[str] = Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found["descriptor " + re.sub(r"\d+", "N", os.readlink(f"/proc/{pid}/fd/{name}"))] += 1
    with open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            words = line.split(maxsplit=5)
            if len(words) > 5 and words[5].startswith("/memfd"):
                found["mapping " + words[5].strip()] += 1
    found.update({f"adapter's {kind}": count for kind, count in devices.find(NAME).resources().items()})
    return found


def more_than(pid: int, before: Counter[str], limit_s: float) -> Counter[str]:
    """What there is more of, once that has come to rest."""
    end_s = time.monotonic() + limit_s
    while (more := there(pid) - before) and time.monotonic() < end_s:
        time.sleep(0.01)
    return more


def is_told(error: Exception) -> bool:
    """Whether it is an error that programs expect, and speaks of no other than its errno says."""
    code = getattr(error, "error_code", None) or getattr(error, "errno", None)
    others = [os.strerror(each) for each in TOLD if each != code]
    return isinstance(error, ALLOWED) and not any(each in str(error) for each in others)


def one_round(
    place: Own | Adapter, kept: Kept, operation: Callable[[Kept], None], number: int
) -> tuple[str, str]:
    """Which call has failed, if there were so many; and how the operation has ended."""
    said = ""
    place.arm(number)
    try:
        operation(kept)
    except Exception as error:
        said = f"{'' if is_told(error) else '!'}{type(error).__name__}: {error}"
    finally:
        name = place.disarm()
    return name, said


def main(name: str) -> int:
    shim, operation = os.environ.get("SHIM"), OPERATIONS[name]
    place = Adapter(shim) if shim else Own()
    kept = Kept()
    operation(kept)
    operation(kept)
    gc.collect()
    gc.freeze()  # each round looks for garbage: among what it has made itself
    wrong = 0
    for number in range(MOST):
        before = there(place.pid)
        call, said = one_round(place, kept, operation, number)
        if more_than(place.pid, before, LOOK_S):  # is it made once and stays, or comes with each such round?
            before = there(place.pid)
            one_round(place, kept, operation, number)
            if more := more_than(place.pid, before, SETTLED_S):
                wrong += 1
                print(f"{call} fails, call {number}, {said or 'no error'}: left are {dict(more)}")
        if said.startswith("!") or (said and not call) or not place.is_well():
            wrong += 1
            print(f"{call or 'nothing'} fails, call {number}: {said or 'others are not served'}")
        if "-v" in sys.argv:
            print(number, call, said[:150], flush=True)
        if not call:
            print(f"{number} calls, {wrong} wrong")
            return wrong
    print(f"after {MOST} calls it has not come to an end")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) != 0)
