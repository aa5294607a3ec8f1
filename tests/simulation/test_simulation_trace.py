"""What the trace of a world tells of the inside of its adapters."""

import json

import pytest

from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace
from softhca.transport.observation import EVENTS
from softhca.wire.psn import distance

PACKETS = {"sent", "received", "lost"}
FRAME = {"start", "end", "queue_pair"}


def lines_of(name, seed=1, faults=""):
    """The outcome of a world and its trace, each line with its ``place``."""
    lines = []
    outcome = run_world(name, seed, faults, Trace(lines.append))
    return outcome, [{**json.loads(line), "place": place} for place, line in enumerate(lines)]


def select(lines, event, **fields):
    return [
        line
        for line in lines
        if line["event"] == event and all(line.get(name) == value for name, value in fields.items())
    ]


def following(lines, line, event, **fields):
    """The first such line after ``line``."""
    return next(found for found in select(lines, event, **fields) if found["place"] > line["place"])


@pytest.mark.parametrize(
    ("opcode", "length", "told"),
    [
        (4, 11, {"length_bytes": 11}),
        (4, 12, {"qp": 0x010203, "opcode": "RC_SEND_ONLY", "psn": 0x040506, "length_bytes": 12}),
        (0x64, 19, {"qp": 0x010203, "opcode": "UD_SEND_ONLY", "psn": 0x040506, "length_bytes": 19}),
        (0x64, 20, {"qp": 0x010203, "opcode": "UD_SEND_ONLY", "psn": 0x040506, "source_qp": 0x070809,
                    "length_bytes": 20}),
        (4, 20, {"qp": 0x010203, "opcode": "RC_SEND_ONLY", "psn": 0x040506, "length_bytes": 20}),
    ],
)  # fmt: skip
def test_a_line_says_of_a_packet_what_it_has_room_for(opcode, length, told):
    lines = []
    data = bytes((opcode, 0, 0xFF, 0xFF, 0, 1, 2, 3, 0, 4, 5, 6, 0, 0, 0, 0, 0, 7, 8, 9))[:length]
    Trace(lines.append).packet(5, "sent", 1, data)
    assert json.loads(lines[0]) == {"time_ns": 5, "event": "sent", "adapter": 1, "number": 1, **told}


@pytest.mark.parametrize(("qp", "psn"), [(0, 0), (0, -1), (-1, 0), (-1, -1), (5, 7)])
def test_a_line_of_the_inside_leaves_out_what_is_unset(qp, psn):
    lines = []
    Trace(lines.append).inside(5, "gap", 1, qp, psn, "", "")
    set_ = {name: value for name, value in (("qp", qp), ("psn", psn)) if value >= 0}
    assert json.loads(lines[0]) == {"time_ns": 5, "event": "gap", "adapter": 1, **set_}


@pytest.mark.parametrize("scenario", ["psn-wrap", "rc-loss", "rc-chaos"])
def test_a_loss_is_a_gap_a_nak_and_a_retransmission_from_that_packet(scenario):
    _, lines = lines_of(scenario, 1, "loss=3%,burst=0,duplicate=0,reorder=0")
    cycles = 0
    for nak in select(lines, "nak_sent", reason="sequence_error"):
        adapter, qp, psn = nak["adapter"], nak["qp"], nak["psn"]
        before, after = lines[: nak["place"]], lines[nak["place"] :]
        gap = select(before, "gap", adapter=adapter, qp=qp, reason=f"expected {psn}")[-1]
        assert distance(psn, gap["psn"]) > 0
        assert select(before, "lost", qp=qp, psn=psn)
        taken = select(after, "nak_received", adapter=3 - adapter, psn=psn)
        if not taken or lines[taken[0]["place"] + 1]["event"] != "retransmission":
            continue  # the NAK was lost, or its taker was going back already
        again = lines[taken[0]["place"] + 1]
        assert (again["qp"], again["psn"], again["reason"]) == (taken[0]["qp"], psn, "sequence_error")
        assert following(lines, again, "sent", adapter=3 - adapter, qp=qp)["psn"] == psn
        cycles += 1
    assert cycles


def test_an_rnr_nak_is_sent_taken_waited_for_and_left_behind():
    _, lines = lines_of("rnr", 1, "loss=0")
    told = select(lines, "rnr_nak_sent")
    assert told
    for nak in told:
        taken = following(lines, nak, "rnr_nak_received", adapter=3 - nak["adapter"], psn=nak["psn"])
        assert taken["reason"] == nak["reason"]
        assert nak["reason"].startswith("wait_ns ")
        over = following(lines, taken, "rnr_wait_over", qp=taken["qp"])
        assert over["time_ns"] >= taken["time_ns"] + 10_000
        assert over["psn"] == taken["psn"]
        again = following(lines, over, "sent", adapter=over["adapter"], qp=nak["qp"])
        assert (again["psn"], again["time_ns"]) == (over["psn"], over["time_ns"])
        quiet = lines[taken["place"] : over["place"]]
        requests = [line for line in select(quiet, "sent", adapter=over["adapter"], qp=nak["qp"])]
        assert all("ACKNOWLEDGE" in line["opcode"] or "RESPONSE" in line["opcode"] for line in requests)


def test_a_partition_for_ever_exhausts_retries_and_flushes():
    _, lines = lines_of("partition", 1, "partition=1>2@1010us..")
    given_up = select(lines, "retry_exhausted", reason="timeout")
    assert given_up
    for line in given_up:
        qp = line["qp"]
        own = [found for found in lines[line["place"] + 1 :] if found.get("qp") == qp]
        own = [found for found in own if found["event"] in EVENTS]
        assert [(found["event"], found["state"], found["reason"]) for found in own[:2]] == [
            ("send_failed", "RTS", "RETRY_EXC_ERR"),
            ("state_changed", "RTS>ERR", "completion_error"),
        ]
        assert own[0]["psn"] == line["psn"]
        flushed = select(own, "send_failed", reason="WR_FLUSH_ERR") + select(own, "receive_failed")
        assert flushed
        assert {(found["state"], found["reason"]) for found in flushed} == {("ERR", "WR_FLUSH_ERR")}
        assert len(select(lines[: line["place"]], "retransmission", qp=qp, psn=line["psn"])) == 7


def test_a_loss_of_an_unreliable_connection_is_a_dropped_message_with_its_reason():
    _, lines = lines_of("uc-loss", 6)
    dropped = select(lines, "message_dropped")
    assert dropped
    assert {line["reason"] for line in dropped} == {"sequence"}
    lost = {(line["qp"], line["psn"]) for line in select(lines, "lost")}
    assert {(line["qp"], line["psn"]) for line in dropped} <= lost


def test_a_damaged_packet_is_dropped_with_the_reason_icrc():
    _, lines = lines_of("rc-corrupt", 1, "corrupt=5%,truncate=0")
    damaged = [line for line in select(lines, "received") if line.get("reason")]
    assert damaged
    dropped = select(lines, "packet_dropped")
    # whose address or queue pair was damaged is dropped for that, before an ICRC is computed
    assert {line["reason"] for line in dropped} <= {"icrc", "source", "destination", "unknown_qp"}
    assert len(select(dropped, "packet_dropped", reason="icrc")) > 0.6 * len(damaged)
    # what is not dropped was damaged in header fields that change on the way, and that no ICRC covers
    assert {line["place"] for line in dropped} <= {line["place"] + 1 for line in damaged}
    assert len(dropped) > 0.8 * len(damaged)
    numbers = {line["place"]: (line["qp"], line["psn"]) for line in damaged}
    assert all((line["qp"], line["psn"]) == numbers[line["place"] - 1] for line in dropped)


@pytest.mark.parametrize("scenario", ["rc-chaos", "ud-chaos"])
def test_packets_keep_their_number_on_the_way(scenario):
    outcome, lines = lines_of(scenario)
    sent = select(lines, "sent")
    assert [line["number"] for line in sent] == list(range(1, outcome.packets + 1))
    arrived = []
    for line in select(lines, "received") + select(lines, "lost"):
        first = sent[line["number"] - 1]
        assert first["place"] < line["place"]
        assert (first["adapter"] == line["adapter"]) is (line["event"] == "lost")
        names = ("qp", "opcode", "psn", "length_bytes", "source_qp")
        assert [first.get(name) for name in names] == [line.get(name) for name in names]
        arrived.append(line["number"])
    assert set(arrived) == {line["number"] for line in sent}
    copies = [line["number"] for line in lines if line.get("reason") == "duplicated"]
    assert copies
    assert len(arrived) == len(sent) + len(copies)


def test_queue_pairs_are_told_with_whom_they_talk_to():
    _, lines = lines_of("ud-mix")
    ends = {
        (line["adapter"], line["qp"]): (line["peer"], line["peer_qp"]) for line in select(lines, "queue_pair")
    }
    assert len(ends) == 8
    assert {ends[peer] for peer in ends.values()} == set(ends)
    for line in select(lines, "sent"):
        assert ends[line["adapter"], line["source_qp"]] == (3 - line["adapter"], line["qp"])


def test_every_event_is_in_the_table_and_every_line_is_complete():
    seen = set()
    for name in ("rc-chaos", "uc-chaos", "partition", "rnr", "srq", "rc-corrupt"):
        for line in lines_of(name)[1]:
            assert list(line)[:3] == ["time_ns", "event", "adapter"]
            if line["event"] in EVENTS:
                assert None not in line.values()
                assert "" not in line.values()
            seen.add(line["event"])
    assert PACKETS | FRAME < seen <= PACKETS | FRAME | set(EVENTS)


def test_quiet_worlds_tell_only_their_states():
    for name in ("rc-mix", "uc-mix", "ud-mix"):
        events = {line["event"] for line in lines_of(name)[1]}
        assert events - PACKETS - FRAME == {"state_changed"}
