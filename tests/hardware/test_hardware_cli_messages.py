"""``softhca rmb subsystem --messages``: packets of both sides, clocks, a capture, a picture."""

import json
from xml.etree import ElementTree

import pytest

pytest.importorskip("amaranth")

from machine_speed import limit_s
from softhca.cli import rmb_messages
from softhca.cli.main import main
from softhca.hardware.activity import WAITS, WORKS, Span, draw, engine_states, loaded_program
from softhca.hardware.budget import CALLER, tasks_of
from softhca.hardware.context_memory import RECEIVE, SEND
from softhca.hardware.microcode_files import microcode_program
from softhca.wire.pcap import read_pcap

pytestmark = pytest.mark.timeout(limit_s(600))


def test_the_command_moves_messages_both_ways(tmp_path, capsys):
    capture, picture = tmp_path / "both.pcap", tmp_path / "both.svg"
    words = ["--messages", "--mtu", "256", "--size", "9", "--pcap", str(capture), "--svg", str(picture)]
    assert main(["rmb", "subsystem", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = [(row["message"], row["asked_by"], row["right"]) for row in told["messages"]]
    assert names == [
        (name, who, True) for who in ("gates", "software") for name in ("SEND", "RDMA WRITE", "RDMA READ")
    ]
    opcodes = [row["opcode"].removeprefix("RC_") for row in told["packets"]]
    assert opcodes == ["SEND_ONLY", "ACKNOWLEDGE", "RDMA_WRITE_ONLY", "ACKNOWLEDGE", "RDMA_READ_REQUEST",
                       "RDMA_READ_RESPONSE_ONLY"] * 2  # fmt: skip
    with capture.open("rb") as stream:
        assert [len(packet.data) for packet in read_pcap(stream)] == [row["bytes"] for row in told["packets"]]
    for row in told["messages"]:
        assert row["clocks_a_packet"] == row["clocks"]
        busy = row["busy_percent"]
        engine = "SQ engine" if row["asked_by"] == "gates" else "RQ engine"
        assert busy[engine] > 20
        assert busy["link out"] > 0 < busy["link in"]
        assert busy["key search"] == 0
        clocks = {(task["engine"], task["task"]): task["works"] + task["waits"] for task in row["budget"]}
        assert (
            clocks[engine[:2], "headers"]
            > 0
            < clocks[
                engine[:2],
                "payload" if row["asked_by"] == "software" or row["message"] != "RDMA READ" else "message",
            ]
        )
        for name in ("SQ", "RQ"):  # together what the engine was at
            share = 100 * sum(count for (who, _), count in clocks.items() if who == name) / row["clocks"]
            assert share == pytest.approx(busy[f"{name} engine"], abs=1)
        waits = {task["task"]: task["waits"] for task in row["budget"] if task["engine"] == engine[:2]}
        assert waits["headers"] == 0 < sum(waits.values())
        # a READ's payload is the RQ's matter on both sides
        mover = "SQ payload" if row["asked_by"] == "gates" and row["message"] != "RDMA READ" else "RQ payload"
        assert busy[mover] > 0
    root = ElementTree.fromstring(picture.read_text())
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"RQ engine", "look-ups", "RDMA READ of the gates"} <= set(words)


def test_words_above_the_lanes_do_not_lie_over_one_another():
    marks = {"a long message of the gates": 0, "the next one": 20, "and another": 25, "the last one": 995}
    root = ElementTree.fromstring(draw({"lane": [Span(0, 9, WORKS)]}, marks, 0, 1000))
    svg = "{http://www.w3.org/2000/svg}"
    places = {one.text: (float(one.get("x")), float(one.get("y"))) for one in root.iter(svg + "text")}
    rows = [places[words][1] for words in marks]
    assert rows[0] < rows[1] < rows[2]
    assert rows[3] == rows[0]
    assert places["the last one"][0] + 6 * len("the last one") <= float(root.get("width"))
    (lane,) = (float(one.get("y")) for one in root.iter(svg + "rect") if one.get("class") == "lane")
    assert max(rows) < lane


def test_the_picture_has_a_box_a_span_within_its_bounds():
    spans = {"one": [Span(0, 5, WORKS), Span(5, 8, WAITS), Span(90, 120, WORKS)], "two": []}
    root = ElementTree.fromstring(draw(spans, {"begins": 5}, 5, 105))
    boxes = [
        (box.get("class"), box.get("x"), box.get("width"))
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert [box for box in boxes if box[0] != "lane"] == [
        ("waits", "166.0", "27.0"),
        ("works", "931.0", "135.0"),
    ]
    assert [box[0] for box in boxes].count("lane") == 2


def test_a_message_that_comes_otherwise_fails_the_command(monkeypatch, capsys):
    async def script(self, context):
        self.told.append(rmb_messages.MessageFigures("SEND", "gates", 9, 1, 10, {"link in": 1}, False, []))

    monkeypatch.setattr(rmb_messages._Adapters, "_script", script)
    assert main(["rmb", "subsystem", "--messages"]) == 1
    assert "not as it must be: SEND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--messages", "--mtu", "300"], "--mtu is one of 256, 512, 1024, 2048, 4096, not 300"),
        (["--messages", "--together", "17"], "--together is 1 to 16, not 17"),
        (["--messages", "--size", "0"], "--size is 1 to 16384, not 0"),
        (["--messages", "--design", "microcode"], "--design is not of --messages"),
        (["--svg", "x"], "--pcap and --svg are of --messages"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, told, capsys):
    assert main(["rmb", "subsystem", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error


@pytest.mark.parametrize("vis", [4, 256])
def test_each_instruction_of_the_loaded_program_has_its_task(vis):
    """A number above 63 takes a longer form, which moves what is behind it."""
    for engine, expected in (
        (
            SEND,
            {
                "begin": "message",
                "header": "headers",
                "piece": "payload",
                "fetch": CALLER,
                "tell": "completion",
            },
        ),
        (
            RECEIVE,
            {"base": "headers", "drain": CALLER, "scatter": "payload", "busy": CALLER, "answer": "answer"},
        ),
    ):
        program = loaded_program(engine, vis)
        tasks = tasks_of(engine, vis)
        assert len(tasks) == len(program.halves)
        assert tasks[program.labels["idle" if engine == SEND else "next"]] == "turn"
        for label, task in expected.items():
            assert tasks[program.labels[label]] == task, label
        states = engine_states(engine, vis)
        assert [states.get(program.labels["busy"] + i) for i in range(3)] == [WAITS, WAITS, None]
    with_other_size = microcode_program("receive", {"VIS": vis}).labels["busy"]
    assert loaded_program(RECEIVE, vis).labels["busy"] == with_other_size
