"""Orders of an actor that are about conversations: how they come about, go on, are judged and end."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from typing import Any

from chaos_script import Shape
from chaos_talk import KINDS, Talk, shape_of

from softhca import sockets
from softhca.channels import Channel, ChannelOptions
from softhca.channels.listener import Listener
from softhca.sockets import devices as socket_devices

JOIN_S = 60.0
HELLO = b"+"


def threads_stand() -> str:
    """Where each thread of this process stands."""
    names = {each.ident: each.name for each in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame)[-8:])}"
        for ident, frame in sys._current_frames().items()
    )


class Party:
    """The conversations of this process with one other.  ``kind`` is their kind, ``address`` this process's.
    ``patience`` are `Settings` of streams, `ChannelOptions` of channels."""

    def __init__(self, kind: str, side: int, address: str, patience: dict[str, Any]) -> None:
        self.kind = kind
        self.side = side
        self.address = address
        self.patience = patience
        self.talks: list[Talk] = []
        self.made: list[Any] = []
        self.failed = ""
        self.dropped = 0
        """Connections without a stream of which both sides know."""
        self.listening: Any = None
        self._accepting: threading.Thread | None = None

    # How they come about

    def _socket(self, kind: int = sockets.SOCK_STREAM) -> Any:
        made = sockets.socket(sockets.AF_INET, kind)
        made.settings = sockets.Settings(**self.patience)
        return made

    def _options(self) -> ChannelOptions:
        return ChannelOptions(**self.patience)

    def bind(self, count: int) -> list[Any]:
        """Sockets for datagrams: their names."""
        for _ in range(count):
            self.made.append(self._socket(sockets.SOCK_DGRAM))
            self.made[-1].bind((self.address, 0))
        return [each.getsockname() for each in self.made]

    def listen(self, count: int) -> list[Any]:
        """Have a thread accept ``count``; the name to connect to."""
        if self.kind == "streams":
            self.listening = self._socket()
            self.listening.bind((self.address, 0))
            self.listening.listen()
            self.listening.settimeout(JOIN_S)
            name = list(self.listening.getsockname())
        else:
            self.listening = Channel.listen(f"{self.address}:0", options=self._options())
            name = [self.listening.address]
        self._accepting = threading.Thread(target=self._accept, args=[count], daemon=True)
        self._accepting.start()
        return name

    def _accept(self, count: int) -> None:
        try:
            while len(self.made) < count:
                if isinstance(self.listening, Listener):
                    self.made.append(self.listening.accept(JOIN_S))
                    continue
                self._keep(self.listening.accept()[0])
        except Exception:
            self.failed = traceback.format_exc(limit=-6)

    def connect(self, name: list[Any], count: int) -> None:
        """As many to who listens at ``name``, one after the other: they are accepted in this order."""
        end = time.monotonic() + JOIN_S
        while len(self.made) < count:
            if self.kind == "streams":
                made = self._socket()
                made.settimeout(JOIN_S)
                try:
                    made.connect(tuple(name))
                except ConnectionRefusedError:
                    # By the connection manager alone, from an adapter without a turn for as long as it is
                    # waited for.
                    made.close()
                    if time.monotonic() > end:
                        raise
                    continue
                if not self._keep(made) and time.monotonic() > end:
                    raise RuntimeError("all streams are the kernel's")
            else:
                self.made.append(
                    Channel.connect(
                        name[0],
                        acknowledged=self.kind == "channels",
                        options=self._options(),
                        timeout=JOIN_S,
                    )
                )

    def _keep(self, made: Any) -> bool:
        """Keep a socket that has a stream, of which both sides know: who connects says `HELLO`.  One that has
        none, since a busy machine has answered too late where the port is served, is closed by both ends, and
        one whose peer has given up by who accepts.
        """
        known = False
        with contextlib.suppress(OSError):
            if made.stream is not None and self.side:
                made.sendall(HELLO)
                known = True
            elif made.stream is not None:
                made.settimeout(JOIN_S)
                known = made.recv(len(HELLO)) == HELLO
        if known:
            self.made.append(made)
        else:
            self.dropped += 1
            made.close()
        return known

    @property
    def joined(self) -> bool:
        """Whether nobody accepts any more."""
        return self._accepting is None or not self._accepting.is_alive()

    def settle(self) -> None:
        """All are there.  What did not come about is raised."""
        if self.failed:
            raise RuntimeError(self.failed)
        if self.listening is not None:
            self.listening.close()
        for made in self.made:
            if isinstance(made, sockets.socket):
                made.settimeout(None)

    def tell_names(self, names: list[Any]) -> None:
        """``names`` are those of the peer's datagrams."""
        if self.kind == "datagrams":
            for talk, name in zip(self.talks, names, strict=True):
                talk.peer_name = tuple(name)  # type: ignore[attr-defined]

    def make(self, party: Any, shape: Shape, rows: list[int], seeds: list[int]) -> None:
        """A conversation over each."""
        kind = KINDS[self.kind]
        self.talks = [
            kind(party, self.side, shape_of(self.kind, shape), row, seed, made)
            for made, row, seed in zip(self.made, rows, seeds, strict=True)
        ]


class Talking:
    """A part of an actor; see `chaos_actor.Actor`."""

    wrong: list[str]
    ledgers: Any
    ledger: Any
    parties: dict[int, Party]
    step: Any

    def order_meet(
        self, group: int, kind: str, side: int, address: str, patience: dict[str, Any], count: int
    ) -> dict[str, Any]:
        """Begin to have conversations with another process: side 0 listens."""
        party = self.parties[group] = Party(kind, side, address, patience)
        if kind == "datagrams":
            return {"names": party.bind(count)}
        return {"name": party.listen(count) if side == 0 else []}

    def order_approach(self, group: int, name: list[Any], count: int) -> None:
        """Side 1 connects."""
        self.parties[group].connect(name, count)

    def order_settle(
        self, group: int, shape: dict[str, Any], rows: list[int], seeds: list[int], names: list[Any]
    ) -> dict[str, Any]:
        """Wait until all are there; the conversations are made, and forgers told of them."""
        party = self.parties[group]
        end = time.monotonic() + JOIN_S
        while not party.joined and time.monotonic() < end:
            self.step()
        party.settle()
        if len(party.made) < len(rows):
            raise RuntimeError(
                f"{len(party.made)} of {len(rows)} there, {party.dropped} dropped:\n{threads_stand()}"
            )
        party.make(self, Shape(**{**shape, "kinds": tuple(shape["kinds"])}), rows, seeds)
        party.tell_names(names)
        return {"targets": [target for talk in party.talks for target in talk.targets()]}

    def order_talk(self, group: int, rest_s: float) -> None:
        """Begin to send and to receive."""
        for talk in self.parties[group].talks:
            talk.rest_s = rest_s or talk.rest_s
            talk.begin()

    def order_hush(self, group: int, limit_s: float) -> dict[str, Any]:
        """Send nothing more; which rows have not stopped."""
        talks = self.parties[group].talks
        for talk in talks:
            talk.stopping = True
        end = time.monotonic() + limit_s
        while not all(talk.quiet for talk in talks) and time.monotonic() < end:
            self.step()
        return {"left": [talk.row for talk in talks if not talk.quiet]}

    def order_hear(self, group: int, ledger: int, rows: list[int]) -> None:
        """Judge what has come; the peer's words are ``ledger``'s."""
        for talk, row in zip(self.parties[group].talks, rows, strict=True):
            self.wrong += talk.check(self.ledgers[ledger], row)

    def order_part(self, group: int) -> None:
        """Close this end; memory stays for another look."""
        for talk in self.parties[group].talks:
            talk.begin_close()
        for talk in self.parties[group].talks:
            talk.close()

    def order_stand(self) -> dict[str, Any]:
        """Where the threads stand, for the word of a failure."""
        return {"threads": threads_stand()}

    def order_forget(self, group: int) -> None:
        """The same where it has not been done, and let go."""
        self.order_part(group)
        for talk in self.parties.pop(group).talks:
            self.wrong += talk.free()

    def part_all(self) -> None:
        """Close what there still is, and let devices go, as a program does that ends in order."""
        for group in list(self.parties):
            self.order_forget(group)
        socket_devices.let_go()

    def child_is_refused(self) -> bool:
        """In a forked child: whether the parent's conversations are its own alone."""
        return all(talk.refused() for party in self.parties.values() for talk in party.talks if talk.threads)
