"""The responder's memory before and after a conversation, as far as the capture tells it."""

from __future__ import annotations

import sys

from replay_capture import Message

from softhca.queues import wqe

GUARD = 64
UNTOUCHED = 0xEE
MASK64 = 0xFFFFFFFFFFFFFFFF
WRITES = (wqe.RDMA_WRITE, wqe.RDMA_WRITE_WITH_IMM)
ATOMICS = (wqe.ATOMIC_CMP_AND_SWP, wqe.ATOMIC_FETCH_AND_ADD)


class Image:
    """The bytes that the messages of one R_Key name, ``low`` … ``high`` − 1, with guard bytes around them.

    ``before``: what an RDMA READ or atomic found there before any request wrote it, otherwise UNTOUCHED.
    ``after``: the same once all messages that were not refused are executed in order.
    """

    def __init__(self, messages: list[Message]) -> None:
        spans = [(m.first["va"], m.first["va"] + length_of(m)) for m in messages]
        self.low = min(low for low, _ in spans)
        self.high = max(high for _, high in spans)
        size = self.high - self.low + 2 * GUARD
        self.before = bytearray([UNTOUCHED]) * size
        known = bytearray(size)
        for message in messages:
            span = self.span(message)
            found = None if message.opcode in WRITES else content_of(message)
            for i in span:
                if not known[i]:
                    known[i] = 1
                    if found is not None and not message.refused:
                        self.before[i] = found[i - span.start]
        self.after = bytearray(self.before)
        for message in messages:
            self.execute(message)

    def span(self, message: Message) -> range:
        start = GUARD + message.first["va"] - self.low
        return range(start, start + length_of(message))

    def execute(self, message: Message) -> None:
        span = self.span(message)
        place = slice(span.start, span.stop)
        if message.refused:
            return
        if message.opcode in WRITES:
            self.after[place] = message.data
            return
        assert self.after[place] == content_of(message), "the capture contradicts itself"
        if message.opcode in ATOMICS:
            self.after[place] = result_of(message).to_bytes(8, sys.byteorder)


def length_of(message: Message) -> int:
    """Bytes of the responder's memory that the message names."""
    return 8 if message.opcode in ATOMICS else message.first["dma_length_bytes"]


def content_of(message: Message) -> bytes:
    """What an RDMA READ or atomic found."""
    return message.original.to_bytes(8, sys.byteorder) if message.opcode in ATOMICS else message.data


def result_of(message: Message) -> int:
    """What an atomic leaves behind (IBTA 9.4.5)."""
    if message.opcode == wqe.ATOMIC_FETCH_AND_ADD:
        return (message.original + message.first["swap_add"]) & MASK64
    return message.first["swap_add"] if message.original == message.first["compare"] else message.original


def images(messages: tuple[Message, ...]) -> dict[int, Image]:
    """The image of every R_Key that the messages name."""
    by_key: dict[int, list[Message]] = {}
    for message in messages:
        if "va" in message.first:
            by_key.setdefault(message.first["rkey"], []).append(message)
    return {key: Image(group) for key, group in by_key.items()}
