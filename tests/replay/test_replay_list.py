"""The list of differences is complete, belongs to the captures, and is what the documentation shows."""

from pathlib import Path

import pytest
from replay_capture import CAPTURES, conversation, load, requesters
from replay_differences import (
    CREDITS,
    DIFFERENCES,
    EVERYWHERE,
    NOT_REPLAYED,
    REPLAYED,
    Absent,
    Changed,
    concerns,
    expected,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "interop.md"


def spans(numbers):
    """``3, 5–7`` for 3, 5, 6, 7."""
    runs = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def told(difference):
    """One difference as the documentation words it."""
    if isinstance(difference, Changed):
        return f"`{difference.field}` of {spans(difference.values)}: {difference.reason}"
    if isinstance(difference, Absent):
        return f"{spans(difference.numbers)} not sent: {difference.reason}"
    return f"one more before {difference.before}, like {difference.like}: {difference.reason}"


def document_rows():
    """The table's rows in the order of the list."""
    for name, plan in REPLAYED.items():
        listed = "<br>".join(told(d) for d in DIFFERENCES.get(name, ())) or "none"
        yield f"| {name} | {plan.packets} | {listed} |"
    for name, reason in NOT_REPLAYED.items():
        yield f"| {name} | not replayed | {reason} |"


def sequences(name):
    """What is compared: requests and replies of every direction."""
    for direction in range(REPLAYED[name].directions):
        talk = conversation(name, direction)
        yield talk.requests
        yield talk.replies


def test_every_capture_is_replayed_or_left_out_with_a_reason():
    assert not REPLAYED.keys() & NOT_REPLAYED.keys()
    assert {path.stem for path in CAPTURES.glob("*.pcap")} == REPLAYED.keys() | NOT_REPLAYED.keys()
    assert DIFFERENCES.keys() <= REPLAYED.keys()


@pytest.mark.parametrize("name", REPLAYED)
def test_every_packet_of_a_replayed_capture_takes_part(name):
    plan = REPLAYED[name]
    assert len(load(name)) == plan.packets
    assert len(requesters(name)) == plan.directions
    numbers = sorted(packet.number for packets in sequences(name) for packet in packets)
    assert numbers == list(range(1, plan.packets + 1))


@pytest.mark.parametrize("name", DIFFERENCES)
def test_every_difference_names_packets_of_the_capture(name):
    for difference in DIFFERENCES[name]:
        of = [packets for packets in sequences(name) if concerns(difference, {p.number for p in packets})]
        assert of
        numbers = {packet.number for packets in of for packet in packets}
        if isinstance(difference, Changed):
            assert difference.values.keys() <= numbers
        elif isinstance(difference, Absent):
            assert set(difference.numbers) <= numbers
        else:
            assert len(of) == 1


@pytest.mark.parametrize("name", DIFFERENCES)
def test_without_credits_those_differences_do_not_exist(name):
    rest = [d for d in DIFFERENCES[name] if isinstance(d, Changed) and d.reason == CREDITS]
    for packets in sequences(name):
        with_credits = [record.get("syndrome") for _, record in expected(name, packets, True)]
        without = [record.get("syndrome") for _, record in expected(name, packets, False)]
        if rest and packets[0].is_reply:
            assert with_credits != without
        else:
            assert with_credits == without


def test_the_documentation_shows_the_list():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert EVERYWHERE[3] in text
    table = text.split("\n## ")[0].splitlines()
    assert [line for line in table if line.startswith("| ")][1:] == list(document_rows())
