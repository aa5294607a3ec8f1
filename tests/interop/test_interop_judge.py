"""Who owes the next packet, and what was sent again though nobody asked, from packets in their order."""

from __future__ import annotations

from typing import Any

import pytest
from interop_capture import is_roce
from interop_judge import conversation
from interop_link import CellError
from interop_mix import ConnectionEnded, Mix, Side, judge

ASKER, ANSWERER = 0x11, 0x22
SEND_ONLY, READ, READ_ONLY, ACK, COMPARE_SWAP, ATOMIC_ACK = 4, 12, 16, 17, 19, 18
GOOD, RNR, SEQUENCE = 0x1F, 0x2C, 0x60


def packets(*words: tuple[str, int, int] | tuple[str, int, int, int]) -> list[dict[str, Any]]:
    """``("ask", opcode, PSN)`` and ``("answer", opcode, PSN, syndrome)``, a nanosecond apart."""
    return [
        {
            "time_ns": number, "qpn": ANSWERER if word[0] == "ask" else ASKER, "opcode": word[1],
            "psn": word[2], "syndrome": word[3] if len(word) == 4 else -1,
        }
        for number, word in enumerate(words, 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("last", "owes"),
    [
        (("ask", SEND_ONLY, 2), "responder"),
        (("answer", ACK, 1, GOOD), "requester"),
        (("answer", ACK, 1, RNR), "requester"),
        (("answer", READ_ONLY, 1, GOOD), "requester"),
        (("answer", ATOMIC_ACK, 1, GOOD), "requester"),
        (("ask", COMPARE_SWAP, 2), "responder"),
        (("ask", READ, 2), "responder"),
    ],
)
def test_whoever_heard_the_last_packet_owes_the_next(last: Any, owes: str) -> None:
    found = conversation(packets(("ask", SEND_ONLY, 1), last), ASKER, ANSWERER)
    assert found.owes() == owes
    assert f"the {owes}'s turn" in found.told()


def test_packets_of_the_other_direction_are_of_another_conversation() -> None:
    frames = packets(("answer", SEND_ONLY, 9), ("ask", ACK, 9, GOOD), ("ask", SEND_ONLY, 1))
    assert conversation(frames, ASKER, ANSWERER).requests == 1
    assert conversation(frames, ANSWERER, ASKER).requests == 1


@pytest.mark.parametrize("nak", [RNR, SEQUENCE])
def test_what_a_nak_asks_for_is_sent_again_once(nak: int) -> None:
    sent = [("ask", SEND_ONLY, psn) for psn in (1, 2, 3)]
    again = [("ask", SEND_ONLY, psn) for psn in (2, 3)]
    found = conversation(packets(*sent, ("answer", ACK, 2, nak), *again), ASKER, ANSWERER)
    assert (found.requests, found.again, found.unasked) == (5, 2, 0)
    found = conversation(packets(*sent, ("answer", ACK, 2, nak), *again, *again), ASKER, ANSWERER)
    assert (found.again, found.unasked) == (4, 2)


def test_each_nak_asks_once_also_when_the_next_one_comes_first() -> None:
    sent = [("ask", SEND_ONLY, psn) for psn in (1, 2)]
    naks = [("answer", ACK, 1, RNR)] * 2
    found = conversation(packets(*sent, *naks, *sent, *sent), ASKER, ANSWERER)
    assert (found.again, found.unasked) == (4, 0)


def test_what_stands_before_a_nak_is_not_asked_for_again() -> None:
    sent = [("ask", SEND_ONLY, psn) for psn in (0xFFFFFF, 0, 1)]
    frames = packets(*sent, ("answer", ACK, 0, RNR), ("ask", SEND_ONLY, 0xFFFFFF), ("ask", SEND_ONLY, 0))
    found = conversation(frames, ASKER, ANSWERER)
    assert (found.again, found.unasked) == (2, 1)


def test_a_nak_asks_for_what_leaves_before_it_is_read_too() -> None:
    """Also where that follows what an earlier NAK has asked for."""
    first, second = ([("ask", SEND_ONLY, psn) for psn in psns] for psns in ((1, 2), (3, 4)))
    nak = ("answer", ACK, 1, RNR)
    found = conversation(packets(first[0], nak, first[1], *first, *second), ASKER, ANSWERER)
    assert (found.again, found.unasked) == (2, 0)
    frames = packets(*first, nak, first[0], nak, first[1], *second, *first, *second)
    found = conversation(frames, ASKER, ANSWERER)
    assert (found.again, found.unasked) == (6, 0)


@pytest.mark.parametrize("over", [("ask", SEND_ONLY, 1), ("answer", ACK, 1, GOOD)])
def test_but_not_for_what_leaves_when_it_was_heeded_or_is_obsolete(over: Any) -> None:
    frames = packets(
        ("ask", SEND_ONLY, 1), ("answer", ACK, 1, RNR), over, *[("ask", SEND_ONLY, 2)] * 2,
    )  # fmt: skip
    assert conversation(frames, ASKER, ANSWERER).unasked == 1


@pytest.mark.parametrize(
    ("wrong", "ended"),
    [
        (["qp: request 3 where 3 is due: status 12", "qp: receive 1: status 5"], True),
        (["qp: request 3 where 3 is due: status 12", "qp1: message 4 of 9 bytes differs"], False),
    ],
)
def test_a_connection_that_ended_is_told_from_wrong_data(wrong: list[str], ended: bool) -> None:
    """Only the former can be the fault of a kernel that broke."""
    with pytest.raises(CellError) as raised:
        judge(Mix([Side("softhca", {"wrong": wrong}, {})], {}))
    assert isinstance(raised.value, ConnectionEnded) == ended


IPV4 = b"\x45" + bytes(8) + b"\x11" + bytes(10)
FRAME = bytes(12) + b"\x08\x00" + IPV4 + b"\xc0\x00\x12\xb7" + bytes(4 + 16)


@pytest.mark.parametrize(
    ("frame", "taken"),
    [
        (FRAME, True),
        (FRAME[:-1], False),
        (FRAME[:14] + b"\x65" + FRAME[15:], False),
        (FRAME[:14] + b"\x4f" + FRAME[15:], False),
    ],
)
def test_frames_whose_headers_were_damaged_are_left_out(frame: bytes, taken: bool) -> None:
    assert is_roce(frame) == taken
