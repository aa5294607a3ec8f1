"""Requests of the fabric manager: what they look like, their window, their retries, and responses."""

from __future__ import annotations

import pytest

from softhca.fabric.manager.requests import NEVER_NS, Requests
from softhca.management import constants as c

TIMEOUT_NS, RETRIES, WINDOW = 100, 2, 3
PATH, M_KEY = b"\x01\x02\x03", 0x1122334455667788


class Asked:
    """Requests, the packets that they sent, and what came of them."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.ended: list[tuple[int | None, bytes]] = []
        self.requests = Requests(self.sent.append, WINDOW, TIMEOUT_NS, RETRIES, M_KEY)

    def get(self, number: int = 1) -> None:
        for modifier in range(number):
            self.requests.get(PATH, c.ATTRIBUTE_PORT_INFO, self.end, modifier)

    def end(self, status: int | None, data: bytes) -> None:
        self.ended.append((status, data))

    def answer(self, packet: bytes, status: int = 0, data: bytes = b"", attribute: int | None = None) -> None:
        response = bytearray(packet)
        response[4:6] = (0x8000 | status).to_bytes(2, "big")
        response[6] = 0x55
        response[64:128] = data.ljust(64, b"\0")
        if attribute is not None:
            response[16:18] = attribute.to_bytes(2, "big")
        self.requests.response(bytes(response), 0)


def test_a_request_goes_by_directed_route() -> None:
    asked = Asked()
    asked.requests.set(PATH, c.ATTRIBUTE_PORT_INFO, b"\xab\xcd", asked.end, 0x01020304)
    asked.requests.pump(5)
    (packet,) = asked.sent
    assert packet[:8] == bytes((1, c.CLASS_SUBN_DIRECTED, 1, c.METHOD_SET, 0, 0, 0, len(PATH)))
    assert packet[8:16] == (1).to_bytes(8, "big")
    assert packet[16:24] == c.ATTRIBUTE_PORT_INFO.to_bytes(2, "big") + bytes(2) + bytes((1, 2, 3, 4))
    assert packet[24:32] == M_KEY.to_bytes(8, "big")
    assert packet[32:36] == b"\xff" * 4
    assert packet[36:64] == bytes(28)
    assert packet[64:128] == b"\xab\xcd".ljust(64, b"\0")
    assert packet[128:] == (b"\0" + PATH).ljust(128, b"\0")


@pytest.mark.parametrize("status", [0, 0x1C, 0x7F01])
def test_a_response_ends_its_request_with_status_and_data(status: int) -> None:
    asked = Asked()
    asked.get()
    asked.requests.pump(0)
    asked.answer(asked.sent[0], status, b"data")
    assert asked.ended == [(status, b"data".ljust(64, b"\0"))]
    asked.answer(asked.sent[0])
    assert len(asked.ended) == 1
    assert asked.requests.counters["unmatched"] == 1
    assert asked.requests.idle


def test_a_response_of_another_attribute_ends_nothing() -> None:
    asked = Asked()
    asked.get()
    asked.requests.pump(0)
    asked.answer(asked.sent[0], attribute=c.ATTRIBUTE_NODE_INFO)
    assert asked.ended == []
    assert asked.requests.counters["unmatched"] == 1


def test_the_window_bounds_what_is_under_way() -> None:
    asked = Asked()
    asked.get(WINDOW + 2)
    asked.requests.pump(0)
    assert len(asked.sent) == WINDOW
    asked.answer(asked.sent[1])
    asked.requests.pump(0)
    assert len(asked.sent) == WINDOW + 1
    assert not asked.requests.idle


def test_a_request_is_sent_again_and_then_given_up() -> None:
    asked = Asked()
    asked.get()
    asked.requests.pump(0)
    for number in range(1, RETRIES + 1):
        due = number * TIMEOUT_NS
        assert asked.requests.next_deadline_ns == due
        asked.requests.expire(due - 1)
        assert len(asked.sent) == number
        asked.requests.expire(due)
        assert len(asked.sent) == number + 1
    assert len({packet[8:16] for packet in asked.sent}) == len(asked.sent)  # each has its transaction ID
    asked.requests.expire((RETRIES + 1) * TIMEOUT_NS)
    assert asked.ended == [(None, b"")]
    counters = asked.requests.counters
    assert (counters["sent"], counters["sent_again"], counters["timed_out"]) == (3, 2, 1)
    assert asked.requests.next_deadline_ns == NEVER_NS
    asked.answer(asked.sent[0])
    assert len(asked.ended) == 1


def test_what_is_given_up_is_not_waited_for() -> None:
    asked = Asked()
    asked.get(WINDOW + 1)
    asked.requests.pump(0)
    asked.requests.forget()
    assert asked.requests.idle
    assert asked.requests.next_deadline_ns == NEVER_NS
    asked.answer(asked.sent[0])
    asked.requests.expire(10 * TIMEOUT_NS)
    assert (asked.ended, len(asked.sent)) == ([], WINDOW)
    assert asked.requests.counters["unmatched"] == 1
