"""Conversations that prove themselves: streams, datagrams and channels, with a thread that sends and one that
receives at each end, as programs have them.

The threads stand in calls that wait.  What they see of the peer is judged by `chaos_hearing`, and memory that
a channel shares by `chaos_script.Expectation`; how they ended stands in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import mmap
import select
import threading
import time
import traceback
from typing import Any

from chaos_hearing import HEADER_BYTES, Messages, Numbered, Stream, carried
from chaos_ledger import (
    DONE,
    ENDED,
    FAILED_NS,
    POSTED,
    POSTED_NS,
    RECEIVED,
    SEND_FAILED_NS,
    SEND_STATUS,
    STATUS,
    Ledger,
)
from chaos_script import (
    GUARD,
    GUARD_BYTES,
    READ,
    SEND,
    WRITE,
    Direction,
    Expectation,
    Operation,
    Shape,
    mixed,
)

from softhca import sockets
from softhca.channels import Channel, ChannelEnded
from softhca.channels.aio import waiters_of
from softhca.verbs.enums import IBV_QP_RQ_PSN

CLOSE_S = 25.0
"""By when a close has returned, and with it all calls of others: longer than any of them lingers."""
BUFFER_BYTES = 1 << 18
REST_S = 0.0005
LOOK_S = 0.05
MOST_BYTES = {"datagrams": 60_000, "messages": 8192}
"""Of one that carries its number."""


class Talk:
    """One end.  ``row`` is that of the ledger, ``side`` (0, 1) says which direction is whose."""

    hearing: Any

    def __init__(self, party: Any, side: int, shape: Shape, row: int, seed: int) -> None:
        self.party = party
        self.shape = shape
        self.row = row
        self.side = side
        self.pool = party.pool
        self.sent = Direction(seed * 2 + side, shape)
        self.peer = Direction(seed * 2 + 1 - side, shape)
        self.stopping = self.closing = False
        self.rest_s = REST_S
        self.wrong: list[str] = []
        self.turns = 0
        self.threads: list[threading.Thread] = []
        self.ledger: Ledger = party.ledger
        self.ledger.clear(row)

    # What each kind does

    def send(self, n: int, operation: Operation) -> None:
        """Carry out an operation.  OSError."""
        raise NotImplementedError

    def receive(self) -> str | None:
        """Wait for more and judge it: what is wrong, or nothing; None at the end."""
        raise NotImplementedError

    def shut(self) -> None:
        """Close this end, in order."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Called by the thread that sends, first."""

    # Threads

    def begin(self) -> None:
        """Begin to send and to receive."""
        for call in (self._receive_on, self._send_on):
            self.threads.append(threading.Thread(target=call, daemon=True))
            self.threads[-1].start()

    def _send_on(self) -> None:
        try:
            self.prepare()
            n = 0
            while not self.stopping:
                n += 1
                self.ledger.set(self.row, POSTED_NS, time.monotonic_ns())
                self.ledger.set(self.row, POSTED, n)
                self.send(n, self.sent.operation(n))
                self.ledger.set(self.row, DONE, n)
                time.sleep(self.rest_s * (mixed(self.sent.seed ^ n) >> 60 & 3))
        except OSError as error:
            self._over(SEND_STATUS, SEND_FAILED_NS, error)
        except Exception:
            self._tell(traceback.format_exc(limit=-6))

    def _receive_on(self) -> None:
        try:
            while True:
                word = self.receive()
                if word is None:
                    self._over(STATUS, FAILED_NS, None)
                    return
                self.ledger.set(self.row, RECEIVED, self.hearing.whole)
                if word:
                    self._tell(word)
        except OSError as error:
            self._over(STATUS, FAILED_NS, error)
        except Exception:
            self._tell(traceback.format_exc(limit=-6))

    def _over(self, status: int, failed_ns: int, error: OSError | None) -> None:
        """A thread is told of an end, and leaves."""
        if self.closing:
            return
        code = ENDED if error is None or isinstance(error, ChannelEnded) else error.errno or errno.EIO
        self.ledger.set(self.row, failed_ns, time.monotonic_ns())
        self.ledger.set(self.row, status, code)

    def _tell(self, word: str) -> None:
        self.wrong.append(f"conversation {self.row}: {word}")

    # Looks

    @property
    def quiet(self) -> bool:
        """Whether the thread that sends has stopped, as it was asked to."""
        return len(self.threads) < 2 or not self.threads[1].is_alive()

    def check(self, ledger: Ledger, row: int) -> list[str]:
        """What has come was sent: the peer's words are ``ledger``'s.  And what was wrong up to now."""
        touched = self.hearing.touched
        posted = ledger.get(row, POSTED)
        if touched > posted:
            self._tell(f"operation {touched} has come, {posted} were sent")
        found, self.wrong = self.wrong, []
        return found

    def close(self) -> None:
        """Close it under its threads; all have come back then."""
        self.begin_close()
        for each in self.threads:
            each.join(CLOSE_S)
            if each.is_alive():
                self._tell(f"a call of {each.name} does not come back from a close")
        self.threads = []

    def begin_close(self) -> None:
        """The same, and leave the wait to `close`."""
        if self.closing or not self.threads:
            return
        self.stopping = self.closing = True
        self.threads.append(threading.Thread(target=self._close, daemon=True))
        self.threads[-1].start()

    def _close(self) -> None:
        try:
            self.shut()
        except Exception:
            self._tell("close: " + traceback.format_exc(limit=-6))

    def free(self) -> list[str]:
        """Behind `close`: what was wrong, to the last."""
        found, self.wrong = self.wrong, []
        return found

    def refused(self) -> bool:
        """In a forked child: whether it is refused."""
        raise NotImplementedError

    def targets(self) -> list[dict[str, int]]:
        """What a forger who knows all knows of this end."""
        return []


def _target(qp: Any, va: int, rkey: int) -> dict[str, int]:
    psn = qp.query(IBV_QP_RQ_PSN)[0].rq_psn
    return {"qpn": qp.qp_num, "psn": psn, "va": va, "rkey": rkey, "lkey": rkey, "private": va}


def _wiped(data: bytes, call: Any) -> None:
    """Give ``call`` memory that changes as soon as it has returned."""
    held = bytearray(data)
    call(held)
    held[:] = bytes(len(held))


class StreamTalk(Talk):
    """A stream of `softhca.sockets`; received by copies, into pages that are mapped, and lent."""

    def __init__(self, party: Any, side: int, shape: Shape, row: int, seed: int, made: Any) -> None:
        super().__init__(party, side, shape, row, seed)
        self.socket = made
        self.hearing = Stream(self.peer, self.pool)
        self.buffer = sockets.PageBuffer(BUFFER_BYTES)
        self.held = b""

    def send(self, n: int, operation: Operation) -> None:
        data = carried(operation, self.pool)
        if n % 3 == 0:
            _wiped(data, self.socket.sendall)
        elif n % 8 == 1:
            self._send_when_writable(memoryview(data))
        else:
            self.socket.sendall(data)

    def _send_when_writable(self, data: memoryview) -> None:
        """As programs do that wait by descriptor."""
        while data and not self.closing:
            if select.select([], [self.socket], [], LOOK_S)[1]:
                with contextlib.suppress(BlockingIOError):
                    data = data[self.socket.send(data, sockets.MSG_DONTWAIT) :]

    def _await_readable(self) -> None:
        """The same; the kernel does not wake who waits for a descriptor that is closed."""
        while not self.closing and not select.select([self.socket], [], [], LOOK_S)[0]:
            pass

    def receive(self) -> str | None:
        self.turns += 1
        how = mixed(self.peer.seed ^ self.turns) & 7
        if how < 4:
            if how < 2:
                self._await_readable()
            data = self.socket.recv(1 + (mixed(self.turns) & 0x1FFFF))
        elif how < 6:
            with self.socket.recv_view(BUFFER_BYTES) as view:
                data = bytes(view)
                word = self.hearing.hear(data) if data else None
                time.sleep(self.rest_s * (self.turns & 1))  # the peer goes on meanwhile
                if view != data:
                    return "bytes that were lent have changed"
            return word
        else:
            if self.buffer[: len(self.held)] != self.held:
                return "bytes that were received have changed"
            self.held = b""  # a receive may change all of it, also where it fails
            count = self.socket.recv_into(self.buffer)
            data = self.held = self.buffer[:count]
        return self.hearing.hear(data) if data else None

    def targets(self) -> list[dict[str, int]]:
        stream = self.socket.stream
        offer = stream.offer()
        return [_target(stream._cmid._qp, offer.address, offer.rkey)]

    def shut(self) -> None:
        self.socket.close()

    def free(self) -> list[str]:
        if self.buffer[: len(self.held)] != self.held:
            self._tell("bytes that were received have changed at the end")
        self.buffer.release()
        return super().free()

    def refused(self) -> bool:
        try:
            self.socket.send(b"of a child")
        except ConnectionResetError:
            return True
        return False


class DatagramTalk(Talk):
    """Datagrams between two sockets; ``peer_name`` is the other one's."""

    peer_name: Any

    def __init__(self, party: Any, side: int, shape: Shape, row: int, seed: int, made: Any) -> None:
        super().__init__(party, side, shape, row, seed)
        self.socket = made
        self.hearing = Numbered(self.peer, self.pool, ordered=False)

    def send(self, n: int, operation: Operation) -> None:
        _wiped(
            Numbered.message(self.sent, n, self.pool), lambda data: self.socket.sendto(data, self.peer_name)
        )
        time.sleep(self.rest_s)

    def receive(self) -> str | None:
        data, source = self.socket.recvfrom(1 << 16)
        word = self.hearing.hear(data)
        if source != self.peer_name:
            word += f" a datagram of {source}, not of {self.peer_name}"
        return word

    def shut(self) -> None:
        self.socket.close()

    def refused(self) -> bool:
        return True  # a child's datagrams are UDP's


class MessageTalk(Talk):
    """An unacknowledged channel: messages alone, that may be lost."""

    def __init__(self, party: Any, side: int, shape: Shape, row: int, seed: int, made: Channel) -> None:
        super().__init__(party, side, shape, row, seed)
        self.channel = made
        self.loop = asyncio.new_event_loop() if row & 1 else None
        """Of every other one's thread that receives."""
        self.hearing: Any = Numbered(self.peer, self.pool, ordered=True)

    def send(self, n: int, operation: Operation) -> None:
        _wiped(Numbered.message(self.sent, n, self.pool), self.channel.send)

    def receive(self) -> str | None:
        if self.loop is None:
            data = self.channel.recv()
        else:
            data = self.loop.run_until_complete(self.channel.aio.recv())
        return str(self.hearing.hear(data))

    async def _watch(self) -> None:
        """Have the loop's descriptor now, so that a round which counts descriptors finds no new one."""
        waiters_of(self.channel._link)

    def _receive_on(self) -> None:
        try:
            if self.loop is not None:
                self.loop.run_until_complete(self._watch())
            super()._receive_on()
        finally:
            if self.loop is not None:
                self.loop.close()

    def targets(self) -> list[dict[str, int]]:
        ends = self.channel._endpoint.wire.qp, self.channel._link.wire.qp
        return [_target(qp, *self.granted()) for qp in ends]

    def granted(self) -> tuple[int, int]:
        """Address and R_Key of what the peer may write to."""
        return 0, 0

    def shut(self) -> None:
        self.channel.close()

    def refused(self) -> bool:
        try:
            self.channel.send(b"of a child")
        except OSError:
            return True
        return False


class ChannelTalk(MessageTalk):
    """An acknowledged channel, with memory between guard pages that the peer writes, reads and counts in."""

    def __init__(self, party: Any, side: int, shape: Shape, row: int, seed: int, made: Channel) -> None:
        super().__init__(party, side, shape, row, seed, made)
        self.hearing = Messages(self.peer, self.pool)
        self.expectation = Expectation(self.sent, self.peer, self.pool)
        length = shape.granted_bytes
        self.mapping = mmap.mmap(-1, length + 2 * GUARD_BYTES)
        self.mapping[:GUARD_BYTES] = GUARD
        self.mapping[GUARD_BYTES + length :] = GUARD + bytes(len(self.mapping) - 2 * GUARD_BYTES - length)
        begin = GUARD_BYTES + shape.inbox_bytes
        self.mapping[begin : begin + shape.inbox_bytes] = self.expectation.readable
        self.left = b""
        self.atomics = 0
        self.readable = Expectation(self.peer, self.sent, self.pool).readable
        self._view = memoryview(self.mapping)
        self._shared = self._view[GUARD_BYTES : GUARD_BYTES + length]
        self.box = made.share("box", self._shared, "rwa")

    def prepare(self) -> None:
        self.remote = self.channel.remote("box")

    def send(self, n: int, operation: Operation) -> None:
        data = carried(operation, self.pool)
        inbox = self.shape.inbox_bytes
        if operation.kind == SEND:
            _wiped(data, self.channel.send)
        elif operation.kind == WRITE:
            _wiped(data, lambda held: self.remote.write(held, operation.offset))
        elif operation.kind == READ:
            found = self.remote.read(operation.length, inbox + operation.offset)
            if found != self.readable[operation.offset : operation.offset + operation.length]:
                self._tell(f"READ {n} brought other bytes")
        else:
            count = self.remote.fetch_add(2 * inbox, 1)
            if count != self.atomics:
                self._tell(f"atomic {n} found {count}, not {self.atomics}")
            self.atomics += 1

    def granted(self) -> tuple[int, int]:
        return self.box.mr.buf, self.box.mr.rkey

    def _granted(self) -> bytes:
        return self.mapping[GUARD_BYTES : GUARD_BYTES + self.shape.granted_bytes]

    def check(self, ledger: Ledger, row: int) -> list[str]:
        done = ledger.get(row, DONE)
        data = self._granted()
        posted = ledger.get(row, POSTED)
        for word in self.expectation.check(data, done, posted):
            self._tell(word)
        self._check_guards()
        return super().check(ledger, row)

    def _check_guards(self) -> None:
        end = GUARD_BYTES + self.shape.granted_bytes
        if self.mapping[:GUARD_BYTES] != GUARD or self.mapping[end : end + GUARD_BYTES] != GUARD:
            self._tell("a guard page of shared memory changed")

    def shut(self) -> None:
        super().shut()
        self.left = self._granted()

    def free(self) -> list[str]:
        self._check_guards()
        if self.left and self._granted() != self.left:
            self._tell("bytes changed after the channel's end")
        with contextlib.suppress(BufferError):  # somebody has it still: the collector closes it
            self._shared.release()
            self._view.release()
            self.mapping.close()
        return super().free()


KINDS: dict[str, Any] = {
    "streams": StreamTalk,
    "datagrams": DatagramTalk,
    "channels": ChannelTalk,
    "messages": MessageTalk,
}


def shape_of(kind: str, shape: Shape) -> Shape:
    """What a conversation of a kind does with a shape."""
    if kind == "channels":
        return shape
    room = shape.slot_bytes if kind == "streams" else min(shape.slot_bytes, MOST_BYTES[kind]) - HEADER_BYTES
    return Shape(shape.slots, room, shape.window, (SEND,))
