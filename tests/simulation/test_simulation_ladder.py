"""The packet ladder: everything of the pair is in the picture, said in words, and labels do not overlap."""

import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from softhca.cli.main import main
from softhca.simulation.ladder import NAMED_PAIRS, LadderError, choose, draw, pairs_of
from softhca.simulation.ladder_picture import (
    EM,
    LABEL_WIDTH,
    LINES,
    MARGIN,
    TEXT,
    TIME_WIDTH,
    WIDTH,
    duration,
)
from softhca.simulation.ladder_rows import End, join_states, rows_of, short
from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
HEADER = {"scenario": "s", "seed": 1}
WORLDS = [
    ("rc-mix", ""),
    ("rc-chaos", ""),
    ("rnr", ""),
    ("partition", "partition=1>2@1010us.."),
    ("rc-corrupt", ""),
    ("uc-chaos", ""),
    ("ud-chaos", "loss=20%"),
]


def trace_of(name, faults="", seed=1):
    lines = []
    run_world(name, seed, faults, Trace(lines.append))
    return lines


def parsed(svg):
    return ElementTree.fromstring(svg)


def texts_of(picture):
    return [(float(node.get("x")), float(node.get("y")), node.text) for node in picture.iter(f"{SVG}text")]


def arrows_of(picture):
    """(number, class) of every packet drawn."""
    groups = (node for node in picture.iter(f"{SVG}g") if node.get("class", "").startswith("packet"))
    return [(int(node.get("data-number")), node.get("class").removeprefix("packet ")) for node in groups]


def packets_of(lines, pair):
    """Packets of a pair, by number: the copies' reasons, or why it was lost."""
    found = {}
    for record in map(json.loads, lines):
        if record["event"] == "sent":
            for here, there in (pair, pair[::-1]):
                ends = record["adapter"], record["qp"], record.get("source_qp", here.qp)
                if ends == (here.adapter, there.qp, here.qp):
                    found[record["number"]] = []
        elif record["event"] in ("lost", "received") and record["number"] in found:
            found[record["number"]].append((record["event"], record.get("reason", "")))
    return found


@pytest.mark.parametrize(("name", "faults"), WORLDS)
@pytest.mark.parametrize("which", [0, 1])
def test_every_packet_of_the_pair_has_its_arrows_and_no_other_has_one(name, faults, which):
    lines = trace_of(name, faults)
    pair = pairs_of(map(json.loads, lines))[which]
    packets = packets_of(lines, pair)
    assert packets
    picture = parsed(draw(lines, HEADER, f"{pair[0].qp}:{pair[1].qp}", rows=10_000))
    arrows = arrows_of(picture)
    assert Counter(number for number, _ in arrows) == {number: len(fate) for number, fate in packets.items()}
    lost = {number for number, fate in packets.items() if fate[0][0] == "lost"}
    assert {number for number, look in arrows if look == "lost"} == lost
    words = Counter(words for _, _, words in texts_of(picture))
    reasons = Counter(f"lost: {packets[number][0][1]}" for number in lost)
    assert {word: count for word, count in words.items() if word.startswith("lost: ")} == reasons


@pytest.mark.parametrize(
    ("name", "reason", "look"),
    [
        ("rc-chaos", "duplicated", "duplicated"),
        ("rc-chaos", "reordered", "reordered"),
        ("rc-corrupt", "corrupted", "damaged"),
        ("rc-corrupt", "truncated", "damaged"),
    ],
)
def test_what_was_done_to_a_packet_is_a_colour_and_a_word(name, reason, look):
    lines = trace_of(name)
    packets = packets_of(lines, pairs_of(map(json.loads, lines))[0])
    done = Counter(number for number, fate in packets.items() for copy in fate if copy[1] == reason)
    assert done
    picture = parsed(draw(lines, HEADER, rows=10_000))
    drawn = Counter(number for number, found in arrows_of(picture) if found == look)
    assert all(drawn[number] >= done[number] for number in done)
    assert sum(words.startswith(f"{reason}: ") for _, _, words in texts_of(picture)) == sum(done.values())


@pytest.mark.parametrize(("name", "faults"), WORLDS)
def test_labels_do_not_overlap_and_stay_in_their_columns(name, faults):
    picture = parsed(draw(trace_of(name, faults), HEADER))
    columns = {}
    for node in picture.iter(f"{SVG}text"):
        column = columns.setdefault((node.get("x"), node.get("text-anchor")), [])
        column.append((float(node.get("y")), node.text))
    for x, anchor in ((LINES[0] - 12, "end"), (LINES[1] + 12, "start")):
        rows = sorted(columns[f"{x}", None if anchor == "start" else anchor])
        assert len(rows) > 10
        assert all(lower - upper >= 14 for (upper, _), (lower, _) in pairwise(rows))
        assert all(len(words) * TEXT * EM <= LABEL_WIDTH - 10 for _, words in rows)
    for x, anchor in ((MARGIN, None), (WIDTH - MARGIN, "end")):
        times = [(y, float(words)) for y, words in columns[f"{x}", anchor] if re.fullmatch(r"[\d.]+", words)]
        assert sorted(times) == sorted(times, key=lambda row: row[1])
        assert all(len(f"{moment:.3f}") * 10 * EM <= TIME_WIDTH for _, moment in times)


def words_beside(picture, side):
    """What stands beside one line, downward."""
    x = (LINES[0] - 12, LINES[1] + 12)[side]
    return [words for place, _, words in sorted(texts_of(picture), key=lambda row: row[1]) if place == x]


def test_a_loss_is_told_in_words_on_both_sides():
    lines = trace_of("rc-loss", "loss=0.02,burst=0")
    records = list(map(json.loads, lines))
    goes_back = ("retransmission", "sequence_error")
    taken = next(record for record in records if (record["event"], record.get("reason")) == goes_back)
    psn = taken["psn"]
    pair = next(pair for pair in pairs_of(records) if End(taken["adapter"], taken["qp"]) in pair)
    picture = parsed(draw(lines, HEADER, f"{pair[0].qp}:{pair[1].qp}", rows=10_000))
    side = pair.index(End(taken["adapter"], taken["qp"]))
    here, there = words_beside(picture, side), words_beside(picture, 1 - side)
    (at,) = [at for at, words in enumerate(there) if re.fullmatch(rf"gap \d+ expected {psn}", words)]
    assert there.index(f"NAK {psn}, 20 B") > there.index(f"nak sent {psn} sequence_error") > at
    at = here.index(f"nak received {psn} sequence_error")
    assert here[at + 1] == f"retransmission {psn} sequence_error"
    assert re.fullmatch(rf"\w+ {psn}, \d+ B", here[at + 2])


def test_the_end_of_a_cut_connection_is_told_in_few_rows():
    lines = trace_of("partition", "partition=1>2@1010us..")
    records = list(map(json.loads, lines))
    end = next(record for record in records if record["event"] == "retry_exhausted")
    pair = next(pair for pair in pairs_of(records) if End(end["adapter"], end["qp"]) in pair)
    svg = draw(lines, HEADER, f"{pair[0].qp}:{pair[1].qp}", begin_ns=end["time_ns"])
    words = words_beside(parsed(svg), pair.index(End(end["adapter"], end["qp"])))
    assert [row.split()[0] for row in words[:3]] == ["retry", "send", "RTS>ERR"]
    flushed = [re.fullmatch(r"(send|receive) failed WR_FLUSH_ERR(?: ×(\d+))?", row) for row in words[3:-1]]
    own = [record for record in records if record.get("qp") == end["qp"]]
    failures = [record for record in own if record.get("reason") == "WR_FLUSH_ERR"]
    assert len(flushed) < sum(int(row[2] or 1) for row in flushed) == len(failures)
    assert words[-1] == "ERR>RESET destroy"


def test_states_that_follow_at_once_are_one_row():
    picture = parsed(draw(trace_of("rc-mix"), HEADER))
    for side in (0, 1):
        assert words_beside(picture, side)[0] == "RESET>INIT>RTR>RTS modify"
        assert words_beside(picture, side)[-1] == "RTS>RESET destroy"


def test_the_same_lines_give_the_same_picture():
    assert draw(trace_of("rc-chaos"), HEADER) == draw(trace_of("rc-chaos"), HEADER)


def test_the_header_is_shown_and_cannot_break_the_picture():
    header = {"scenario": "<&>", "seed": '"\'', "faults": "", "digest": "]]> <!-- &amp;", "long": "x" * 1000}
    picture = parsed(draw(trace_of("rc-mix"), header))
    words = [words for _, _, words in texts_of(picture)]
    assert words[:4] == ["scenario <&>  seed \"'", "faults: none", "digest: ]]> <!-- &amp;", words[3]]
    assert words[3].startswith("long: xxx")
    assert words[3].endswith("…")
    assert len(words[3]) == 150


def test_rows_beyond_the_bound_are_counted():
    lines = trace_of("rc-mix")
    whole = len(arrows_of(parsed(draw(lines, HEADER, rows=10_000))))
    picture = parsed(draw(lines, HEADER, rows=12))
    texts = [words for _, _, words in texts_of(picture)]
    (told,) = [words for words in texts if "rows are drawn" in words]
    match = re.fullmatch(r"12 rows are drawn; 0 before and (\d+) after them are left out", told)
    assert int(match[1]) > whole
    assert 0 < len(arrows_of(picture)) <= 12
    assert "arrives later" in texts


def test_a_window_shows_what_was_in_it():
    lines = trace_of("rc-loss")
    records = list(map(json.loads, lines))
    whole = rows_of(records, pairs_of(records)[0])
    times = sorted({row.time_ns for row in whole})
    begin_ns, end_ns = times[3], times[12]
    picture = parsed(draw(lines, HEADER, begin_ns=begin_ns, end_ns=end_ns))
    texts = [words for _, _, words in texts_of(picture)]
    before = sum(row.time_ns < begin_ns for row in whole)
    after = sum(row.time_ns >= end_ns for row in whole)
    within = [row for row in whole if begin_ns <= row.time_ns < end_ns]
    assert f"{len(within)} rows are drawn; {before} before and {after} after them are left out" in texts
    shown = {words for words in texts if re.fullmatch(r"\d+\.\d{3}", words)}
    assert shown == {f"{row.time_ns // 1000}.{row.time_ns % 1000:03}" for row in within if row.text}
    ways = [node.get("class") for node in picture.iter(f"{SVG}path") if "way" in node.get("class", "")]
    assert "way stub" in ways


def test_a_window_with_nothing_in_it_is_an_empty_ladder():
    picture = parsed(draw(trace_of("rc-mix"), HEADER, begin_ns=1 << 50))
    assert arrows_of(picture) == []


def test_a_long_silence_is_cut_and_its_length_written():
    picture = parsed(draw(trace_of("rc-mix"), HEADER))
    assert any(words.endswith("ms of silence") for _, _, words in texts_of(picture))
    assert float(picture.get("height")) < 10_000


@pytest.mark.parametrize(
    ("time_ns", "words"),
    [
        (7, "7 ns"),
        (999, "999 ns"),
        (1_000, "1 µs"),
        (8_484, "8.48 µs"),
        (17_000, "17 µs"),
        (17_100, "17.1 µs"),
        (999_999, "1000 µs"),
        (2_100_000, "2.1 ms"),
        (100_000_000, "100 ms"),
        (5_000_000_000_000, "5000 s"),
    ],
)
def test_lengths_of_time_have_a_unit_that_suits_them(time_ns, words):
    assert duration(time_ns) == words


# lines that worlds do not have of themselves

ENDS = [
    {"time_ns": 5, "event": "queue_pair", "adapter": 1, "qp": 16, "peer": 2, "peer_qp": 32},
    {"time_ns": 5, "event": "queue_pair", "adapter": 2, "qp": 32, "peer": 1, "peer_qp": 16},
    {"time_ns": 5, "event": "queue_pair", "adapter": 1, "qp": 17, "peer": 2, "peer_qp": 33},
]
PACKET = {"number": 1, "qp": 32, "opcode": "RC_SEND_ONLY", "psn": 9, "length_bytes": 16}
OTHER = {"number": 1, "qp": 33, "opcode": "RC_SEND_ONLY", "psn": 9, "length_bytes": 16}


def made(*records):
    lines = [json.dumps(record) + "\n" for record in (*ENDS, *records)]
    return parsed(draw(lines, HEADER))


def test_a_packet_that_nobody_knows_more_of_never_arrives():
    picture = made({"time_ns": 6, "event": "sent", "adapter": 1, **PACKET})
    assert "never arrives" in [words for _, _, words in texts_of(picture)]


def test_a_silence_stands_in_the_middle_between_what_came_before_and_after():
    picture = made(
        {"time_ns": 6, "event": "sent", "adapter": 1, **PACKET},
        {"time_ns": 1_000_006, "event": "sent", "adapter": 1, **PACKET, "number": 2},
    )
    texts = texts_of(picture)
    before, after = [y for _, y, words in texts if words == "SEND_ONLY 9, 16 B"]
    ((x, silence),) = [(x, y) for x, y, words in texts if words == "1 ms of silence"]
    assert x == sum(LINES) / 2
    assert before + 20 < silence < after - 15
    cut = next(node for node in picture.iter(f"{SVG}path") if node.get("class") == "break")
    x1, y, x2 = map(float, re.fullmatch(r"M([\d.]+) ([\d.]+)H([\d.]+)", cut.get("d")).groups())
    assert LINES[0] < x1 < x2 < LINES[1]
    assert y == silence - 4
    assert float(picture.get("height")) > after + 30


def test_what_left_before_the_window_is_seen_to_end_in_it():
    lines = [json.dumps(record) for record in (
        *ENDS,
        {"time_ns": 6, "event": "sent", "adapter": 1, **PACKET},
        {"time_ns": 7, "event": "received", "adapter": 2, **PACKET},
    )]  # fmt: skip
    picture = parsed(draw(lines, HEADER, begin_ns=7))
    (way,) = [node for node in picture.iter(f"{SVG}path") if node.get("class") == "way stub"]
    x1, y1, x2, y2 = map(float, re.fullmatch(r"M(.+) (.+)L(.+) (.+)", way.get("d")).groups())
    assert LINES[0] < x1 < x2 == LINES[1]
    assert y1 < y2


@pytest.mark.parametrize(("packet", "shown"), [(PACKET, 1), (OTHER, 0)])
def test_a_damaged_packet_that_names_another_queue_pair_is_dropped_where_it_belongs(packet, shown):
    named = 99 if shown else 32
    picture = made(
        {"time_ns": 6, "event": "sent", "adapter": 1, **packet},
        {"time_ns": 7, "event": "received", "adapter": 2, **packet, "qp": named, "reason": "corrupted"},
        {"time_ns": 7, "event": "packet_dropped", "adapter": 2, "qp": named, "psn": 9, "reason": "icrc"},
    )
    assert words_beside(picture, 1).count("packet dropped 9 icrc") == shown


@pytest.mark.parametrize(("qp", "shown"), [(32, 1), (33, 0)])
def test_a_packet_that_no_adapter_sent_comes_from_nowhere(qp, shown):
    forged = {"qp": qp, "opcode": "RC_SEND_ONLY", "psn": 9, "length_bytes": 16, "reason": "forged"}
    picture = made(
        {"time_ns": 6, "event": "received", "adapter": 2, **forged},
        {"time_ns": 6, "event": "packet_dropped", "adapter": 2, "qp": qp, "psn": 9, "reason": "source"},
    )
    assert words_beside(picture, 1) == ["forged: SEND_ONLY 9, 16 B", "packet dropped 9 source"] * shown
    assert arrows_of(picture) == [(0, "forged")] * shown
    assert [node.get("class") for node in picture.iter(f"{SVG}path") if "way" in node.get("class", "")] == [
        "way stub"
    ] * shown


def test_what_happens_to_a_whole_adapter_is_told_but_not_what_happens_to_other_queue_pairs():
    picture = made(
        {"time_ns": 6, "event": "crash", "adapter": 2},
        {"time_ns": 6, "event": "crash", "adapter": 3},
        {"time_ns": 6, "event": "async_event", "adapter": 2, "reason": "SRQ_LIMIT_REACHED 4"},
        {"time_ns": 6, "event": "gap", "adapter": 2, "qp": 33, "psn": 1},
        {"time_ns": 6, "event": "gap", "adapter": 1, "qp": 32, "psn": 1},
    )
    assert words_beside(picture, 1) == ["crash"]
    assert words_beside(picture, 0) == []


def test_acknowledgements_are_called_naks_only_where_they_are():
    ack = {"qp": 32, "opcode": "RC_ACKNOWLEDGE", "psn": 9, "length_bytes": 20}
    nak = {"adapter": 1, "qp": 16, "psn": 9, "state": "RTS", "reason": "reserved"}
    picture = made(
        {"time_ns": 6, "event": "nak_sent", **nak},
        {"time_ns": 6, "event": "sent", "adapter": 1, "number": 1, **ack},
        {"time_ns": 6, "event": "sent", "adapter": 1, "number": 2, **ack},
        {"time_ns": 6, "event": "rnr_nak_sent", **nak},
        {"time_ns": 6, "event": "sent", "adapter": 1, "number": 3, **ack},
    )
    assert [words for words in words_beside(picture, 0) if words.endswith("B")] == [
        "NAK 9, 20 B", "ACK 9, 20 B", "RNR_NAK 9, 20 B",
    ]  # fmt: skip


def test_opcodes_are_short():
    assert short("RC_RDMA_READ_RESPONSE_MIDDLE") == "READ_RESPONSE_MIDDLE"
    assert short("UC_RDMA_WRITE_LAST_WITH_IMMEDIATE") == "WRITE_LAST_IMM"
    assert short("RC_ATOMIC_ACKNOWLEDGE") == "ATOMIC_ACK"
    assert short("0x1f") == "0x1f"


def test_only_states_that_go_on_for_the_same_reason_are_joined():
    assert join_states("A>B why", "B>C why") == "A>B>C why"
    assert join_states("A>B why", "C>D why") == ""
    assert join_states("A>B why", "B>C because") == ""
    assert join_states("gap 1", "gap 1") == ""


# which pair

PAIRS = [(End(1, 100 + i), End(2, 200 + i)) for i in range(20)]


def test_a_pair_is_named_in_either_order_and_its_first_is_on_the_left():
    assert choose(PAIRS, "") == PAIRS[0]
    assert choose(PAIRS, "103:203") == PAIRS[3]
    assert choose(PAIRS, "0xcb:0x67") == PAIRS[3][::-1]


@pytest.mark.parametrize("text", ["1:2", "100:201", "100", "a:b", "100:200:300", ":"])
def test_a_pair_that_does_not_exist_is_refused_with_those_that_do(text):
    with pytest.raises(LadderError) as refused:
        choose(PAIRS, text)
    assert str(refused.value) == (
        f"no queue pairs {text} in this world: expected one of "
        + ", ".join(f"{100 + i}:{200 + i}" for i in range(NAMED_PAIRS))
        + " and 8 more"
    )


def test_a_world_without_pairs_has_no_ladder():
    with pytest.raises(LadderError, match="no queue pairs that talk"):
        draw([], HEADER)


# the command


def test_simulate_draws_the_pair_that_is_asked_for(tmp_path, capsys):
    file, lines = tmp_path / "l.svg", trace_of("rc-mix")
    right, left = pairs_of(map(json.loads, lines))[1]
    window = ("--svg-from", "1.001ms", "--svg-to", "1500us")
    assert main(["simulate", "--svg", str(file), "--qp", f"{left.qp}:{right.qp}", *window, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    texts = [words for _, _, words in texts_of(parsed(file.read_text("utf-8")))]
    assert texts[0] == "scenario rc-mix  seed 1"
    assert f"digest: {document['digest']}" in texts
    assert "violations: none" in texts
    assert texts.index("adapter 2") < texts.index("adapter 1")
    times = [float(words) for words in texts if re.fullmatch(r"\d+\.\d{3}", words)]
    assert 1001 <= min(times) <= max(times) < 1500


def test_a_picture_of_chosen_faults_names_them(tmp_path, capsys):
    file = tmp_path / "l.svg"
    assert main(["simulate", "--only-faults", "1>2#2:lost", "--svg", str(file), "--json"]) == 0
    texts = [words for _, _, words in texts_of(parsed(file.read_text("utf-8")))]
    assert "only faults: 1>2#2:lost" in texts


def test_simulate_writes_trace_and_picture_of_one_run(tmp_path, capsys):
    trace, file = tmp_path / "t.jsonl", tmp_path / "l.svg"
    assert main(["simulate", "--trace", str(trace), "--svg", str(file), "--json"]) == 0
    lines = trace.read_text().splitlines()
    document = json.loads(capsys.readouterr().out)
    document["violations"] = "none"
    assert file.read_text("utf-8") == draw(lines, document)


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (["--qp", "1:2"], 2, "expected --svg FILE"),
        (["--svg-to", "1ms"], 2, "expected --svg FILE"),
        (["--svg-from", "0s"], 2, "expected --svg FILE"),
        (["--svg", "FILE", "--svg-from", "1"], 2, "'1' is no time"),
        (["--svg", "FILE", "--svg-from", "-1ms"], 2, "expected one argument"),
        (["--svg", "FILE", "--qp", "1:2"], 2, "no queue pairs 1:2 in this world: expected one of "),
        (["--svg", "/nowhere/file.svg"], 1, "/nowhere/file.svg: No such file"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(words, status, error, tmp_path, capsys):
    file = tmp_path / "l.svg"
    try:
        found = main(["simulate", *(str(file) if word == "FILE" else word for word in words)])
    except SystemExit as ended:
        found = ended.code
    captured = capsys.readouterr()
    assert found == status
    assert captured.err.count("\n") == 1
    assert error in captured.err
    assert captured.out == ""
    assert not file.exists()


def test_the_picture_of_the_document_is_what_its_command_draws(tmp_path, capsys):
    text = (DOCS / "reliability.md").read_text("utf-8")
    (command,) = re.findall(r"softhca (simulate .*--svg docs/ladder\.svg.*)", text)
    file = tmp_path / "ladder.svg"
    assert main([str(file) if word == "docs/ladder.svg" else word for word in shlex.split(command)]) == 0
    assert file.read_text("utf-8") == (DOCS / "ladder.svg").read_text("utf-8"), f"run: softhca {command}"
