"""One operation again and again, each time with a signal whose handler raises TimeoutError at another step of
our Python code: the first, and every ``STRIDE``-th from there on, until there are no more.  Each time the
exception comes out of the call, another thread then uses what there is and makes and ends such things anew,
and at the end no thread or descriptor is left.

``python signal_steps_program.py LIBRARY OPERATION [STRIDE [FIRST]]``, ``LIBRARY`` being ``signal_steps.c``;
it prints what is wrong, and then how many steps there were.  ``python signal_steps_program.py --serve`` does
so for each line of its input, ``[WORDS, ENVIRONMENT, SECONDS]``, in a fork that may take so long, and answers
``[STATUS, OUTPUT]``: to begin takes as long as most operations.
"""

from __future__ import annotations

import ctypes
import dis
import faulthandler
import gc
import importlib
import json
import logging
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from signal_steps_identifiers import Identifiers

from machine_speed import limit_s
from softhca import sockets
from softhca.channels import Channel
from softhca.machine import deferred_signals
from softhca.machine.condition import Condition
from softhca.mailbox import Mailbox, Terms, reached
from softhca.runtime import devices
from softhca.sockets import listening
from softhca.testing.verbs import VerbsEnd, attributes, make_end
from softhca.verbs import enums as e
from softhca.verbs.base import close_deferred
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.device_memory import DM, AllocDmAttr
from softhca.verbs.mr import MR
from softhca.verbs.mr_kinds import DMMR
from softhca.verbs.pageable import PageableMemory, PageableMR
from softhca.verbs.pd import PD
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from softhca.verbs.wq import WQ, RwqIndTable, RwqIndTableInitAttr, WQInitAttr

LIMIT_S = limit_s(20)
SETTLED_S = limit_s(3)
LOOKS = bytes(
    number
    for name, number in dis.opmap.items()
    if "BACKWARD" in name or name in ("CALL", "CALL_FUNCTION_EX", "RESUME")
)


class Late(TimeoutError):
    """What a program's handler of SIGALRM raises."""


class Steps:
    """The tracer."""

    def __init__(self, library: str) -> None:
        self._library = ctypes.PyDLL(library)
        self._where = (ctypes.c_char * 600).in_dll(self._library, "signal_steps_where")
        self.handled, self.told = 0, False
        self.others: list[str] = []
        sys.unraisablehook = self._told
        signal.signal(signal.SIGALRM, self._handle)
        deferred_signals.look_for_handlers()

    def _handle(self, number: int, frame: object) -> None:
        self.handled += 1
        raise Late("late")

    def run(self, step: int, call: Callable[[], object]) -> tuple[str, BaseException | None]:
        """Where the signal came, empty: nowhere; and what came out."""
        self.handled, self.told = 0, False
        error: BaseException | None = None
        number = int(signal.SIGALRM)
        self._library.signal_steps_begin(
            ctypes.c_long(step), number, LOOKS, len(LOOKS), b"softhca/", b"threading.py"
        )
        try:
            try:
                call()
            except BaseException as raised:
                error = raised.with_traceback(None)  # what goes with its frames may be what is interrupted
            self._library.signal_steps_end()
        except Late as raised:
            error = raised.with_traceback(None)
            self._library.signal_steps_end()
        return self._where.value.decode(), error

    def _told(self, unraisable: Any) -> None:
        """What a finalizer, or a weak reference's callback, has raised, out of which nothing comes."""
        self.told = True
        if unraisable.exc_type is not Late:
            self.others.append(f"{unraisable.object!r}: {unraisable.exc_value!r}")


def in_time(what: str, call: Callable[[], object]) -> None:
    """Run it in another thread; where that hangs, say where, and end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    if thread.is_alive():
        print(f"after a signal at {what}: another thread hangs", flush=True)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(1)
    if failed:
        raise failed[0]


class Verbs:
    """Objects of the verbs."""

    def __init__(self) -> None:
        self.context = Context()
        self.channel = CompChannel(self.context)
        self.end = make_end(self.context, size=4096, entries=16, channel=self.channel)
        self.end.qp.to_rts(attributes(self.end, self.end, 1, 1))

    def domains(self) -> None:
        PD(self.context).close()

    def regions(self) -> None:
        MR(self.end.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE).close()

    def queues(self) -> None:
        CQ(self.context, 16).close()
        SRQ(self.end.pd, SrqInitAttr(SrqAttr(max_wr=4))).close()

    def contexts(self) -> None:
        Context().close()

    def connections(self) -> None:
        self._close(self._connected())

    def polls(self) -> None:
        for _ in range(40):
            self.end.send_cq.poll()

    def waits(self) -> None:
        self.end.recv_cq.req_notify()
        self.end.receive(100)
        self.end.send(e.IBV_WR_SEND, 100)
        self.channel.get_cq_event(self.end.recv_cq)
        self.end.recv_cq.ack_events(1)

    def check(self) -> None:
        """The queue pair that was there goes on, also events, and a new one works."""
        self.waits()
        while self.end.recv_cq.poll(8)[0] or self.end.send_cq.poll(8)[0]:
            pass
        end = self._connected()
        self._write(end)
        until(lambda: end.send_cq.poll(1)[0])
        self._close(end)

    def clear(self) -> None:
        """Nothing is kept."""

    def _connected(self) -> VerbsEnd:
        end = make_end(self.context, size=4096, entries=16)
        end.qp.to_rts(attributes(end, end, 1, 1))
        return end

    def _write(self, end: VerbsEnd) -> None:
        end.send(e.IBV_WR_RDMA_WRITE, 100, to=(end.mr.rkey, end.mr.buf))

    def _close(self, end: VerbsEnd) -> None:
        for each in (end.qp, end.mr, end.send_cq, end.recv_cq, end.pd):
            each.close()


class Streams:
    """Sockets over RDMA, both ends here."""

    def __init__(self) -> None:
        self.server = sockets.create_server(("127.0.0.1", 0))
        self.server.settimeout(LIMIT_S)
        self.pair: list[Any] = []
        self.made: list[Any] = []
        self.buffer, self.much = sockets.PageBuffer(1 << 16), bytes(1 << 16)
        self.connect_pair()

    def connect_pair(self) -> None:
        self.pair = [sockets.create_connection(self.server.getsockname(), LIMIT_S), self.server.accept()[0]]
        self.pair[1].settimeout(LIMIT_S)

    def connects(self) -> None:
        one = sockets.socket()
        self.made.append(one)
        one.settimeout(LIMIT_S)
        one.connect(self.server.getsockname())

    def exchanges(self) -> None:
        self.pair[0].sendall(b"z" * 70_000)
        self.pair[1].recv(10)
        self.pair[0].shutdown(sockets.SHUT_WR)

    def lends(self) -> None:
        self.pair[0].sendall(b"z" * 40_000)
        for _ in range(2):
            self.pair[1].recv_view(10).release()

    def maps(self) -> None:
        self.pair[0].sendall(self.much)
        self.pair[1].recv_into(self.buffer)
        self.buffer.release()

    def waits(self) -> None:
        self.pair[1].settimeout(0.005)
        try:
            self.pair[1].recv(5)
        except TimeoutError as error:
            if isinstance(error, Late):
                raise

    def closes(self) -> None:
        self.pair[0].close()

    def check(self) -> None:
        """What was there goes on, unless it was closed, and a new connection works.  The program holds none
        of what has come."""
        one, other = self.pair
        self.buffer.release()
        if one.fileno() >= 0 and one.stream is not None:
            assert not other.stream.held_bytes
            other.settimeout(LIMIT_S)
            other.sendall(b"back")
            assert one.recv(4, sockets.MSG_WAITALL) == b"back"
        self.clear()
        self.connect_pair()

    def clear(self) -> None:
        """Close what is there, and who is still about to be accepted."""
        for each in (*self.pair, *self.made):
            each.close()
        self.made.clear()
        self.server.settimeout(0)
        try:
            while True:
                self.server.accept()[0].close()
        except OSError:
            self.server.settimeout(LIMIT_S)
        kept_s, listening.UNCLAIMED_S = listening.UNCLAIMED_S, 0.0
        for each in list(listening._served.values()):  # of connects that were interrupted before TCP's
            each.give_up_old()
        listening.UNCLAIMED_S = kept_s


class Datagrams:
    """Datagram sockets over RDMA."""

    def __init__(self) -> None:
        self.buffer, self.much = sockets.PageBuffer(1 << 16), bytes(60_000)
        self.pair = [self._bound(), self._bound()]
        self.check()

    def _bound(self) -> Any:
        one = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
        one.bind(("127.0.0.1", 0))
        one.settimeout(LIMIT_S)
        return one

    def opens(self) -> None:
        self._bound().close()

    def exchanges(self) -> None:
        self.pair[0].sendto(b"x" * 100, self.pair[1].getsockname())
        self.pair[1].recv(200)

    def lends(self) -> None:
        self.pair[0].sendto(b"x" * 100, self.pair[1].getsockname())
        self.pair[1].recv_view(200).release()

    def maps(self) -> None:
        self.pair[0].sendto(self.much, self.pair[1].getsockname())
        self.pair[1].recv_into(self.buffer)
        self.buffer.release()

    def check(self) -> None:
        """What has arrived is taken, and then one arrives as it was sent; all room is the senders' again, but
        what a datagram has that was not sent to its end."""
        self.buffer.release()
        self.pair[1].settimeout(0)
        try:
            while True:
                self.pair[1].recv(200)
        except BlockingIOError:
            self.pair[1].settimeout(LIMIT_S)
        number = os.urandom(8)
        self.pair[0].sendto(number, self.pair[1].getsockname())
        while self.pair[1].recv(200) != number:
            pass
        for port in self.pair[1]._end.ports:
            used = port.state.used - sum(len(each.slots) for each in port.state._partials.values())
            assert not used, f"{used} slots are nobody's"

    def clear(self) -> None:
        """Nothing is kept."""


class Channels:
    """Connected channels, both ends here."""

    def __init__(self) -> None:
        self.listener = Channel.listen("127.0.0.1:0")
        self.memory = bytearray(4096)
        self.pair: list[Any] = []
        self.connect_pair()

    def connect_pair(self) -> None:
        accepted: list[Any] = []
        thread = threading.Thread(target=lambda: accepted.append(self.listener.accept()))
        thread.start()
        self.pair = [Channel.connect(self.listener.address), accepted]
        thread.join()
        accepted[0].share("memory", self.memory, "rwa")
        self.remote = self.pair[0].remote("memory")

    def exchanges(self) -> None:
        self.pair[0].send(b"hello")
        self.pair[1][0].recv(timeout=LIMIT_S)

    def buffers(self) -> None:
        self.remote.write(b"memory", 0)
        self.remote.read(0, 6)

    def closes(self) -> None:
        self.pair[0].close()

    def check(self) -> None:
        """What was there goes on, unless it was closed."""
        if self.pair[0].closed:
            self.clear()
            self.connect_pair()
        number = os.urandom(8)
        self.pair[0].send(number)
        while self.pair[1][0].recv(timeout=LIMIT_S) != number:
            pass

    def clear(self) -> None:
        """Close both ends."""
        self.pair[0].close()
        self.pair[1][0].close()


class Mailboxes:
    """Two mailboxes, one of each mode's readers here.  A message whose receive is interrupted is taken."""

    def __init__(self) -> None:
        self.context = Context()
        self.pairs: list[list[Mailbox]] = []
        self.make()

    def make(self) -> None:
        for mode in ("write", "read"):
            pair = [Mailbox(self.context, Terms(slots=8, slot_bytes=128, mode=mode)) for _ in range(2)]
            pair[0].join(pair[1].offer)
            pair[1].join(pair[0].offer)
            self.pairs.append(pair)

    def exchanges(self) -> None:
        for one, other in self.pairs:
            one.send(b"hello")
            other.receive(timeout_s=LIMIT_S)

    def many(self) -> None:
        for one, other in self.pairs:
            one.send_many([b"hello"] * 6)
            other.receive_many()

    def requests(self) -> None:
        for one, other in self.pairs:
            other.actions["bill"] = lambda number: b"bill"
            number = one.request("bill", b"", reached(0), timeout_s=LIMIT_S)
            other.try_receive()
            one.outcome(number)

    def check(self) -> None:
        """Whatever was sent before, what is sent now arrives; in both directions."""
        for pair in self.pairs:
            until(partial(self._is_answered, *pair))
            for one, other in (pair, pair[::-1]):
                number = os.urandom(8)
                while not one.try_send(number):
                    other.try_receive()
                    one.try_receive()  # whoever waits for room for outcomes takes nothing
                self._arrives(one, other, number)

    def _is_answered(self, one: Mailbox, other: Mailbox) -> bool:
        """Whether all requests are."""
        other.try_receive()
        one.try_receive()
        return not any(one.outcome(number) is None for number in list(one._tickets))

    def _arrives(self, one: Mailbox, other: Mailbox, number: bytes) -> None:
        def arrived() -> bool:
            one.try_receive()
            return other.try_receive() == number

        until(arrived)

    def clear(self) -> None:
        """Nothing is kept."""


class Objects:
    """Further objects of the verbs, which are closed, or dropped where the call is interrupted."""

    def __init__(self) -> None:
        self.context = Context()
        self.pd, self.cq = PD(self.context), CQ(self.context, 16)
        self.region = MR(self.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)

    def memories(self) -> None:
        memory = DM(self.context, AllocDmAttr(64))
        DMMR(self.pd, 64, e.IBV_ACCESS_ZERO_BASED, dm=memory, offset=0).close()
        memory.close()

    def pageables(self) -> None:
        rights = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_ON_DEMAND
        memory = PageableMemory(8192, rights)
        PageableMR(self.pd, memory, rights).close()
        memory.close()

    def rights(self) -> None:
        self.region.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=e.IBV_ACCESS_REMOTE_READ)

    def tables(self) -> None:
        queue = WQ(self.context, WQInitAttr(wq_pd=self.pd, wq_cq=self.cq))
        RwqIndTable(self.context, RwqIndTableInitAttr(1, [queue, queue])).close()
        queue.close()

    def check(self) -> None:
        """The region's keys are those of the device, and the device goes on."""
        self.rights()
        PD(self.context).close()

    def clear(self) -> None:
        """Nothing is kept."""


class Conditions:
    """One that another thread notifies all the time; held twice, as by a handler that calls in its turn."""

    def __init__(self) -> None:
        self.context = Context()
        self.lock = threading.RLock()
        self.condition, self.count = Condition(self.lock), 0
        threading.Thread(target=self._tell, daemon=True).start()

    def _tell(self) -> None:
        while True:
            with self.lock:
                self.count += 1
                self.condition.notify_all()
            time.sleep(0.0002)

    def waits(self) -> None:
        with self.lock:
            before = self.count
            with self.lock:
                self.condition.wait_for(lambda: self.count > before, LIMIT_S)

    def times(self) -> None:
        with self.lock:
            self.condition.wait_for(lambda: False, 0.001)

    def check(self) -> None:
        """The other thread goes on, so the lock is free."""
        before = self.count
        until(lambda: self.count > before + 1)

    def clear(self) -> None:
        assert not self.condition._waiters
        with self.lock, self.lock:
            assert self.lock._release_save()[0] == 2
            self.lock._acquire_restore((2, threading.get_ident()))


def until(ready: Callable[[], object]) -> None:
    """Poll until ``ready()``."""
    end_s = time.monotonic() + LIMIT_S
    while not ready():
        assert time.monotonic() < end_s


def descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))


def resources() -> dict[str, int]:
    """What the adapter holds, by kind."""
    return devices.find("steps").resources()


KINDS = (Verbs, Streams, Datagrams, Channels, Mailboxes, Objects, Conditions)


def main() -> None:
    """The command."""
    logging.disable(logging.CRITICAL)
    library, named = sys.argv[1:3]
    stride, step = (int(each) for each in (*sys.argv[3:5], "1", "1")[:2])
    kinds: dict[str, Any] = {each.__name__.lower(): each for each in KINDS}
    kind, operation = named.split("_")
    kinds["identifiers"] = partial(Identifiers, os.environ["SOFTHCA_DEVICES"].partition("udp:")[2])
    things = kinds[kind]()
    in_time("no step", things.check)
    steps, wrong = Steps(library), Counter[str]()
    gc.collect()
    gc.freeze()  # collections of many steps follow
    before, held = (descriptors(), threading.active_count()), resources()
    where = "?"
    while where:
        where, error = steps.run(step, getattr(things, operation))
        if error is not None and not isinstance(error, Late):
            wrong[f"{where}: {error!r} came out"] += 1
        elif error is None and steps.handled and not steps.told:
            wrong[f"{where}: what the handler raised was swallowed"] += 1
        try:
            in_time(f"{where} ({step})", things.check)
        except BaseException as failed:
            wrong[f"{where} ({step}): afterwards {failed!r}"] += 1
        step += stride
    end_s = time.monotonic() + SETTLED_S
    while time.monotonic() < end_s:
        things.clear()  # again: what an interrupted call has asked for may come late
        gc.collect()
        close_deferred()
        left = descriptors(), threading.active_count()
        more = {kind: count for kind, count in resources().items() if count > held.get(kind, 0)}
        if left <= before and not more:
            break
        time.sleep(0.01)
    if more:
        wrong[f"the adapter holds {more}, of {held} before"] += 1
    if left > before:
        wrong[f"descriptors and threads: {before} before, {left} behind"] += 1
    wrong.update(steps.others)
    for each, count in wrong.most_common():
        print(f"{count} x {each}")
    print(f"{step} steps, {sum(wrong.values())} wrong")
    sys.exit(bool(wrong))


def serve() -> None:
    """Answer lines of the input, until its end."""
    for line in sys.stdin:
        gc.freeze()
        words, environment, limit_s = json.loads(line)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile("w+") as imported:
            if (child := os.fork()) == 0:
                with open(os.devnull, "rb") as nothing:
                    os.dup2(nothing.fileno(), 0)
                for number in (1, 2):
                    os.dup2(output.fileno(), number)
                sys.argv[1:] = words
                os.environ.update(environment)
                try:
                    main()
                finally:  # to the end of the interpreter, as of any program
                    json.dump([name for name in sys.modules if name.startswith("softhca.")], imported)
                    imported.flush()
            status = status_of(child, limit_s)
            output.seek(0)
            print(json.dumps([status, output.read().decode()]), flush=True)
            imported.seek(0)
            for name in json.loads(imported.read() or "[]"):
                importlib.import_module(name)


def status_of(child: int, limit_s: float) -> int:
    """How a process has ended; after so long it is ended."""
    ends = os.pidfd_open(child)
    if not select.select([ends], [], [], limit_s)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(ends)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve()
    else:
        main()
