"""Sockets without copies under threads: streams and datagrams, that anybody may close, shut or duplicate."""

from __future__ import annotations

import itertools
import random
import select
import threading
from typing import Any, ClassVar

from stress_frame import Frame

LENGTHS = (1, 500, 4096, 70_000)
WAITS_S = (0.0, 0.001, 0.02, 0.1)


class End:
    """A stream's end: all that it sends is one byte, and so all that it receives must be one, too."""

    letters = itertools.count(1)

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.letter = next(self.letters) % 255 + 1
        self.heard: set[int] = set()

    def close(self) -> None:
        self.socket.close()


class Sockets(Frame):
    """Every method of `softhca.sockets.socket` that moves bytes, and most others."""

    KINDS = ("server", "end", "view", "buffer", "datagram")
    FEW: ClassVar[dict[str, int]] = {"server": 4, "end": 16, "datagram": 8, "view": 8, "buffer": 8}
    SPARED: ClassVar[dict[str, float]] = {"server": 0.8, "end": 0.5}
    OFTEN = ("do_send", "do_receive", "do_accept", "do_datagram")
    THREADS = 1  # the hub's
    DESCRIPTORS = 2

    def refusal(self, error: BaseException) -> bool:
        return isinstance(error, OSError) or (isinstance(error, ValueError) and "released" in str(error))

    def do_server(self, rng: random.Random) -> None:
        from softhca import sockets

        if len(self.pools["server"]) < 2 or rng.random() < 0.05:
            made = sockets.create_server((f"{self.base}.2", 0))
            made.settings = sockets.Settings(pool_bytes=1 << 16, by_cm=False)
            made.settimeout(0.05)
            self.put("server", made)

    def do_connect(self, rng: random.Random) -> None:
        from softhca import sockets

        if (server := self.any("server", rng)) is None or len(self.pools["end"]) >= 16:
            return
        made = sockets.socket()
        try:
            made.settings = sockets.Settings(pool_bytes=1 << 16)
            made.settimeout(2)
            made.connect(server.getsockname())
            made.settimeout(rng.choice(WAITS_S))
        except BaseException:
            made.close()
            raise
        self.put("end", End(made))

    def do_accept(self, rng: random.Random) -> None:
        if (server := self.any("server", rng)) is not None:
            made, _ = server.accept()
            made.settimeout(rng.choice(WAITS_S))
            self.put("end", End(made))

    def do_dup(self, rng: random.Random) -> None:
        if rng.random() < 0.3 and (end := self.any("end", rng)) is not None:
            stream, made = end.socket.stream, End(end.socket.dup())
            if stream is None or made.socket.stream is not stream:  # closed: the number was another's
                made.close()
                return
            made.letter, made.heard = end.letter, end.heard
            self.put("end", made)

    def do_send(self, rng: random.Random) -> None:
        if (end := self.any("end", rng)) is None:
            return
        data = bytes((end.letter,)) * rng.choice(LENGTHS)
        how = rng.random()
        if how < 0.4:
            end.socket.send(bytearray(data) if how < 0.2 else data)
        elif how < 0.8:
            end.socket.sendall(data)
        else:
            end.socket.sendmsg([data[: len(data) // 2], data[len(data) // 2 :]])

    def do_receive(self, rng: random.Random) -> None:
        from softhca import sockets

        if (end := self.any("end", rng)) is None:
            return
        how = rng.random()
        if how < 0.4:
            found = end.socket.recv(rng.choice(LENGTHS))
        elif how < 0.6:
            buffer = bytearray(max(LENGTHS))
            found = bytes(buffer[: end.socket.recv_into(buffer)])
        elif how < 0.8:
            pages = self.any("buffer", rng) if rng.random() < 0.5 else None
            if pages is None:
                pages = Pages(sockets.PageBuffer(1 << 16))
                found = bytes(memoryview(pages.buffer)[: end.socket.recv_into(pages.buffer)])
                self.put("buffer", pages)  # not before: others receive into it then
            else:  # which others receive into at the same time
                end.socket.recv_into(pages.buffer)
                return
        else:
            view = View(end.socket.recv_view(1 << 14))
            found = bytes(view.view)
            self.put("view", view)
        self.completions += len(found)
        end.heard.update(found)
        if len(end.heard) > 1:
            self.violations.append(f"several letters in a stream: {end.heard}")

    def do_shutdown(self, rng: random.Random) -> None:
        if rng.random() < 0.3 and (end := self.any("end", rng)) is not None:
            end.socket.shutdown(rng.choice((0, 1, 2)))

    def do_ask(self, rng: random.Random) -> None:
        if (end := self.any("end", rng)) is None:
            return
        number = end.socket.fileno()
        if number >= 0:
            poll = select.poll()
            poll.register(number)
            poll.poll(0)
        end.socket.getpeername()
        end.socket.getsockname()
        end.socket.getsockopt(1, 4)
        repr(end.socket)

    # datagrams

    def do_bind(self, rng: random.Random) -> None:
        from softhca import sockets

        if len(self.pools["datagram"]) < 4 or rng.random() < 0.05:
            made = sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM)
            made.settimeout(rng.choice(WAITS_S))
            try:
                made.bind((f"{self.base}.{rng.choice((2, 3))}", 0))
            except BaseException:
                made.close()
                raise
            self.put("datagram", made)

    def do_datagram(self, rng: random.Random) -> None:
        one, other = self.any("datagram", rng), self.any("datagram", rng)
        if one is None or other is None:
            return
        if rng.random() < 0.5:
            data, place = bytes((rng.randrange(1, 256),)) * rng.choice((1, 500, 30_000)), other.getsockname()
            if isinstance(place, tuple):  # CPython may ask the descriptor's number after another has it
                one.sendto(data, place)
        else:
            found, _ = one.recvfrom(65_536)
            self.completions += len(found)
            if len(set(found)) != 1:
                self.violations.append(f"several letters in a datagram: {set(found)}")

    def let_go(self) -> None:
        import gc

        from softhca.sockets import devices
        from softhca.sockets.hub import HUB

        for _ in range(3):  # what the hub closes may leave more to close
            gc.collect()
            done = threading.Event()
            HUB.soon(done.set)
            done.wait(10)
        HUB.end()
        devices.let_go()


class Pages:
    """A page buffer: its close gives the pages back."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def close(self) -> None:
        self.buffer.release()


class View:
    """A view of a stream's pool."""

    def __init__(self, view: memoryview) -> None:
        self.view = view

    def close(self) -> None:
        self.view.release()
