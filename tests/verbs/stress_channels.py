"""Channels under threads: messages, named buffers, further channels, listeners that anybody may close."""

from __future__ import annotations

import itertools
import random
from typing import Any, ClassVar

from stress_frame import KEPT, Frame, Nothing

WORD_BYTES = 8
LENGTHS = (8, 200, 256, 3000, 20_000)
WAITS_S = (0.0, 0.001, 0.02, 0.1)


class Shared:
    """A buffer and the word that is all that stands in it; its name tells the word."""

    stamps = itertools.count(1)

    def __init__(self, words: int) -> None:
        self.word = (next(self.stamps) * 0x9E3779B97F4A7C15 & (1 << 64) - 1 | 1).to_bytes(8, "little")
        self.buffer = bytearray(self.word * words)
        self.name = self.word.hex()


class Channels(Frame):
    """Every public method of `softhca.Channel` and its listener."""

    KINDS = ("listener", "channel", "shared", "remote")
    FEW: ClassVar[dict[str, int]] = {"listener": 4, "channel": 16}
    SPARED: ClassVar[dict[str, float]] = {"listener": 0.8, "channel": 0.5, "remote": 1.0}
    OFTEN = ("do_send", "do_receive", "do_accept", "do_remote_operation")

    def refusal(self, error: BaseException) -> bool:
        from softhca.channels.errors import ChannelError

        return isinstance(error, ChannelError)

    # channels

    def do_listen(self, rng: random.Random) -> None:
        from softhca.channels import Channel, ChannelOptions

        if len(self.pools["listener"]) < 2 or rng.random() < 0.05:
            options = ChannelOptions(slots=4, slot_bytes=256, largest_bytes=1 << 20, linger_s=1.0)
            self.put("listener", Channel.listen(f"{self.base}.{rng.choice((2, 3))}:0", options=options))

    def do_connect(self, rng: random.Random) -> None:
        from softhca.channels import Channel, ChannelOptions

        if (listener := self.any("listener", rng)) is not None and len(self.pools["channel"]) < 16:
            options = ChannelOptions(slots=4, slot_bytes=256, largest_bytes=1 << 20, linger_s=1.0)
            self.put("channel", Channel.connect(
                listener.address, acknowledged=rng.random() < 0.8, timeout=1.0, options=options
            ))  # fmt: skip

    def do_accept(self, rng: random.Random) -> None:
        if (listener := self.any("listener", rng)) is not None:
            self.put("channel", listener.accept(rng.choice(WAITS_S)))

    def do_open(self, rng: random.Random) -> None:
        if (channel := self.any("channel", rng)) is not None:
            if rng.random() < 0.5:
                self.put("channel", channel.open("more", acknowledged=rng.random() < 0.7, timeout=0.05))
            else:
                self.put("channel", channel.accept(rng.choice(WAITS_S)))

    def do_kill(self, rng: random.Random) -> None:
        if rng.random() < 0.3 and (channel := self.any("channel", rng)) is not None:
            channel.kill()

    # messages: one word, again and again

    def do_send(self, rng: random.Random) -> None:
        if (channel := self.any("channel", rng)) is not None:
            word = rng.getrandbits(64).to_bytes(8, "little")
            channel.send(word * (rng.choice(LENGTHS) // WORD_BYTES), rng.choice(WAITS_S))

    def do_receive(self, rng: random.Random) -> None:
        if (channel := self.any("channel", rng)) is None:
            return
        how = rng.random()
        if how < 0.4:
            found: Any = channel.recv(rng.choice(WAITS_S))
        elif how < 0.7:
            found = channel.try_recv()
        else:
            buffer = bytearray(max(LENGTHS))
            found = bytes(buffer[: channel.recv_into(buffer, rng.choice(WAITS_S))])
        if found is not None:
            self.completions += 1
            if found != found[:WORD_BYTES] * (len(found) // WORD_BYTES) or not found:
                self.violations.append(f"a message of several words: {found[:64]!r}")

    # named buffers

    def do_share(self, rng: random.Random) -> None:
        if (channel := self.any("channel", rng)) is None:
            return
        made = Shared(rng.choice((1, 64, 1000)))
        self.put("shared", channel.share(made.name, made.buffer, rng.choice(("r", "rw", "rwa"))))
        for each in self.pools["channel"][-3:]:
            self.put("remote", each.remote(made.name, 0.02))
            return

    def put(self, kind: str, thing: Any) -> None:
        if kind != "remote":  # which have no close
            super().put(kind, thing)
            return
        self.pools[kind].append(thing)
        del self.pools[kind][:-KEPT]

    def take(self, kind: str, position: int) -> Any:
        found = super().take(kind, position)
        return Nothing if kind == "remote" else found

    def do_remote_operation(self, rng: random.Random) -> None:
        if (remote := self.any("remote", rng)) is None:
            return
        word = bytes.fromhex(remote.name)
        how = rng.random()
        if how < 0.4:
            found = remote.read(timeout=1.0)
            if found != word * (len(found) // WORD_BYTES):
                self.violations.append(f"foreign bytes in {remote.name}: {found[:64]!r}")
        elif how < 0.7:
            remote.write(word * rng.randrange(1, remote.length // WORD_BYTES + 1), timeout=1.0)
        else:
            found = remote.fetch_add(0, 0, timeout=1.0)
            if found.to_bytes(8, "little") != word:
                self.violations.append(f"a foreign word in {remote.name}: {found:#x}")

    def do_ask(self, rng: random.Random) -> None:
        if (channel := self.any("channel", rng)) is not None:
            channel.fileno()
            repr(channel)
            for name in ("name", "acknowledged", "closed", "longest", "longest_copied", "lost",
                         "registrations", "local_address", "peer_address"):  # fmt: skip
                getattr(channel, name)
