"""``softhca fabric``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from softhca.cli.fabric_routes import ENGINES
from softhca.cli.fabric_simulate import PATTERNS
from softhca.cli.main import main
from softhca.fabric import routing, traffic
from softhca.fabric.generators import fat_tree
from softhca.fabric.topology_file import read_ibnetdiscover, write_ibnetdiscover
from softhca.fabric.topology_yaml import read_yaml

TREE = "fat-tree:radix=4,levels=2"


def result(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["fabric", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    status, out, _ = result(capsys, *words, "--json")
    return status, json.loads(out)


def test_show_counts_nodes_and_links(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = result(capsys, "show", "fat-tree:radix=4", "--links")
    assert status == 0
    for words in ("channel adapter", "16", "switch", "20", "links 4xHDR", "48", "s2-0[1]"):
        assert words in out
    status, shown = document(capsys, "show", "torus:sizes=3x3,hosts=2")
    assert (status, len(shown["nodes"]), len(shown["links"])) == (0, 27, 36)
    assert shown["nodes"][0] == {
        "name": "h0", "kind": "channel_adapter", "guid": "0x0200000000010000", "ports": 1,
        "description": "h0",
    }  # fmt: skip
    assert shown["links"][0] == {"from": "h0[1]", "to": "s0.0[5]", "rate": "4xHDR"}


def test_discover_gives_p_keys_by_a_file_of_partitions(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "partitions.conf"
    file.write_text("Default=0x7fff:ALL=full;\nStorage=0x12:h1=full,h2;\n")
    status, told = document(capsys, "discover", TREE, "--partitions", str(file))
    assert (status, told["steps"][0]["problems"]) == (0, [])
    keys = {each["name"]: each["pkeys"] for each in told["nodes"]}
    assert keys["h0"] == keys["s1-0"] == ["0xffff"]
    assert (keys["h1"], keys["h2"]) == (["0xffff", "0x8012"], ["0xffff", "0x0012"])


def test_partitions_that_cannot_be_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "partitions.conf"
    for data, why in (
        (b"A=5:h1;\nB=6:nobody;", "partitions.conf: line 2: no port is called 'nobody'"),
        (b"\xff\xfe", "partitions.conf: no text"),
        (b" " * ((4 << 20) + 1), "partitions.conf: more than 4 MiB"),
    ):
        file.write_bytes(data)
        status, _, error = result(capsys, "discover", TREE, "--partitions", str(file))
        assert status == 1
        assert why in error
    status, _, error = result(capsys, "discover", TREE, "--partitions", str(tmp_path / "none"))
    assert (status, "none: No such file" in error) == (1, True)
    status, _, error = result(capsys, "serve", TREE, "--partitions", str(file))
    assert (status, "--partitions goes with --manager" in error) == (2, True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--lmc", "1"), "--lmc goes with --manager"),
        (("--m-key", "1", "--engine", "up-down"), "--engine goes with --manager"),
        (("--manager", "--lmc", "8"), "lmc is 0 to 7, not 8"),
        (("--manager", "--m-key", "0"), "'0' is no key"),
        (("--manager", "--m-key", "0x10000000000000000"), "is no key"),
        (("--manager", "--engine", "fastest"), "invalid choice"),
    ],
)
def test_serve_refuses_what_its_manager_cannot_be(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    status: object
    try:
        status, _, error = result(capsys, "serve", "fat-tree:radix=4", *words)
    except SystemExit as refused:  # by the parser
        status, error = refused.code, capsys.readouterr().err
    assert (status, why in error) == (2, True)


def test_show_draws_and_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("a.svg", "a.topo", "a.yaml"):
        option = "--svg" if name.endswith("svg") else "--write"
        assert result(capsys, "show", "fat-tree:radix=4,levels=2", option, str(tmp_path / name))[0] == 0
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")
    fabric = fat_tree(4, 2)
    assert read_yaml((tmp_path / "a.yaml").read_text()).links == fabric.links
    assert len(read_ibnetdiscover((tmp_path / "a.topo").read_text()).links) == len(fabric.links)
    status, shown = document(capsys, "show", str(tmp_path / "a.yaml"))
    assert (status, len(shown["links"])) == (0, 16)
    status, _, error = result(capsys, "show", "fat-tree:radix=4", "--svg", str(tmp_path / "no" / "a.svg"))
    assert status == 1
    assert "No such file" in error


def test_routes_says_whether_all_is_well(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "r.svg"
    words = ("routes", TREE, "--trace", "h0:h7", "--table", "s1-0", "--svg", str(picture))
    status, found = document(capsys, *words)
    assert status == 0
    table = found.pop("table")
    trace = found.pop("trace")
    assert found == {
        "engine": "fat-tree", "switches": 6, "lids": 14, "top_lid": 14, "hosts_apart": 0, "switches_apart": 2,
        "most_hops": 4, "virtual_lanes": 1, "credit_loop": None,
    }  # fmt: skip
    assert trace == ["s1-0[4]", "s2-1[4]", "s1-3[2]"]
    assert len(table) == 14
    assert (table["1"], table["2"], table["9"], table["8"]) == (1, 2, 0, 4)
    assert "8 hosts, 6 switches, fat-tree" in picture.read_text()
    status, out, _ = result(capsys, *words)
    assert status == 0
    for text in ("fat-tree", "s2-1[4]", "forwarding table of s1-0", "none"):
        assert text in " ".join(out.split())


def test_routes_without_a_link_or_with_a_credit_loop_fail(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = document(capsys, "routes", TREE, "--fail", "h0[1]")
    assert (status, found["hosts_apart"]) == (1, 4)
    status, found = document(capsys, "routes", "fat-tree:radix=4", "--fail", "s1-0[3]", "--fail", "s2-4[3]")
    assert (status, found["hosts_apart"], found["engine"]) == (0, 0, "fat-tree")
    status, found = document(capsys, "routes", "torus:sizes=5", "--engine", "min-hop")
    assert (status, len(found["credit_loop"])) == (1, 5)
    assert found["credit_loop"][0].endswith("VL 0")
    status, found = document(capsys, "routes", "torus:sizes=5x3", "--lmc", "1")
    assert (status, found["engine"], found["virtual_lanes"]) == (0, "dimension-order", 2)
    status, found = document(capsys, "routes", "random:switches=9")
    assert (status, found["engine"]) == (0, "up-down")


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (("show", "no-such-file"), 1, "no-such-file: No such file or directory"),
        (("show", "fat-tree:radix"), 2, "'radix' is no parameter: expected NAME=VALUE"),
        (("show", "fat-tree"), 2, "fat-tree needs radix"),
        (("show", "fat-tree:radix=4,radix=6"), 2, "radix is given twice"),
        (("show", "torus:sizes=0"), 2, "a torus has 1 to 8 dimensions"),
        (("routes", "torus:sizes=3", "--engine", "fat-tree"), 1, "no fat tree"),
        (("routes", "torus:sizes=3", "--lmc", "9"), 1, "expected 0 to 7"),
        (("routes", "torus:sizes=3", "--fail", "s9[1]"), 2, "no link at 's9[1]'"),
        (("routes", "torus:sizes=3", "--fail", "s0[x]"), 2, "no link at 's0[x]'"),
        (("routes", "torus:sizes=3", "--trace", "h0:h9"), 2, "no node is named 'h9'"),
        (("routes", "torus:sizes=3", "--trace", "h0"), 2, "expected FROM:TO"),
        (("routes", "torus:sizes=3", "--table", "h0", "--json"), 2, "h0 is no switch"),
        (("routes", "torus:sizes=3", "--table", "x", "--json"), 2, "no node is named 'x'"),
        (("routes", "torus:sizes=3", "--table", "h0"), 2, "h0 is no switch"),
        (("routes", TREE, "--fail", "h0[1]", "--trace", "h1:h0"), 1, "no route to LID"),
        (("routes", TREE, "--fail", "h0[1]", "--trace", "h0:h1"), 1, "hangs on no switch"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int, reason: str
) -> None:
    ended, told, error = result(capsys, *words)
    assert ended == status
    assert told == ""
    assert reason in error
    assert "Traceback" not in error


def test_a_file_that_is_wrong_is_told_with_its_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    half = write_ibnetdiscover(fat_tree(4, 1)).replace("[1]\t", "[2]\t", 1)
    for name, content, reason in (
        ("a.topo", half, "line 6: half a link"),
        ("a.yaml", "switches: {a: x}\n", "line 1: ports of a is 'x'"),
        ("b.topo", "\udcff", "no text"),
    ):
        path = tmp_path / name
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        status, _, error = result(capsys, "show", str(path))
        assert status == 1
        assert f"{path}: {reason}" in " ".join(error.split())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.topo", ""),
        ("b.topo", "# nothing\n"),
        ("a.yaml", "links: []\n"),
        ("b.yaml", "kind: ethernet\nlinks: []\n"),
    ],
)
def test_a_file_without_a_node_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    for part in ("show", "routes", "discover", "simulate", "serve"):
        status, out, error = result(capsys, part, str(path))
        assert (status, out) == (1, ""), part
        assert "no node is in it" in " ".join(error.split())


def test_the_engines_that_the_command_offers_are_all() -> None:
    assert tuple(routing.ENGINES) == ENGINES


def test_the_patterns_that_the_command_offers_are_all() -> None:
    assert traffic.PATTERNS == PATTERNS


def test_without_the_extra_a_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(args: object) -> int:
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy.sparse")

    monkeypatch.setattr("softhca.cli.fabric_show.run", absent)
    status, _, error = result(capsys, "show", "fat-tree:radix=4")
    assert status == 2
    assert "pip install 'softhca[fabric]'" in error


def test_discover_brings_a_fabric_up_and_mends_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = tmp_path / "found.topo"
    status, shown = document(
        capsys, "discover", "fat-tree:radix=4", "--fail", "s1-3[3]", "--lmc", "1", "--write", str(found)
    )
    assert status == 0
    assert [step["step"] for step in shown["steps"]] == ["up", "s1-3[3] failed"]
    for step in shown["steps"]:
        assert (step["nodes"], step["engine"], step["hosts_apart"]) == (36, "fat-tree", 0)
        assert (step["credit_loop"], step["problems"]) == (False, [])
        assert step["datagrams"] > 100
    assert len({node["lid"] for node in shown["nodes"]}) == 36
    assert shown["nodes"][0]["name"] == "h0"
    text = found.read_text()
    assert f"# lid {shown['nodes'][0]['lid']} lmc 1 " in text
    assert len(read_ibnetdiscover(text).links) == 47
    status, out, _ = result(capsys, "discover", "torus:sizes=3x3", "--at", "s1.1", "--engine", "up-down")
    assert status == 0
    assert "up-down" in out
    assert "s1.1" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--at", "h99"), "no node is named 'h99'"),
        (("--lmc", "8"), "lmc is 0 to 7, not 8"),
        (("--window", "0"), "window is 1 to"),
        (("--fail", "h99[1]"), "no link at 'h99[1]'"),
    ],
)
def test_discover_refuses_what_cannot_be(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    status, _, error = result(capsys, "discover", TREE, *words)
    assert status == 2
    assert reason in error


def test_discover_knows_only_who_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    status, shown = document(capsys, "discover", TREE, "--fail", "s1-0[3]", "--fail", "s1-0[4]")
    assert status == 0  # who is cut off is not there any more
    assert [step["nodes"] for step in shown["steps"]] == [14, 14, 3]


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["fabric", "simulate", *words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_simulate_tells_what_came_of_traffic(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("fat-tree:radix=4", "--time", "20us", "--load", "40%", "--fail", "s1-0[3]@5us",
             "--restore", "s1-0[3]@12us", "--reroute", "2us")  # fmt: skip
    found = simulated(capsys, *words, "--svg", str(tmp_path / "a.svg"))
    messages = found["messages"]
    assert messages["offered"] == messages["delivered"] + messages["lost"]
    assert messages["lost"] > 0
    assert sum(found["drops"].values()) >= messages["lost"]
    assert (found["reroutes"], found["hosts"], found["engine"]) == (2, 16, "fat-tree")
    latency = list(found["latency_us"].values())
    assert latency == sorted(latency)
    assert len(found["links"]) == 96
    assert found["throughput_bytes_per_s"] <= found["offered_bytes_per_s"]
    assert simulated(capsys, *words) == found
    assert simulated(capsys, *words, "--seed", "2") != found
    picture = (tmp_path / "a.svg").read_text()
    assert "% of a link in use" in picture
    assert "errors" in picture


def test_simulate_tells_of_a_credit_loop_and_of_congestion(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--load", "100%", "--time", "40us", "--buffer", "66", "--engine", "min-hop"]
    assert main(["fabric", "simulate", "torus:sizes=8,hosts=2", *words]) == 1
    assert "credit loop" in capsys.readouterr().out
    for control in ("ib", "dcqcn"):
        found = simulated(capsys, "fat-tree:radix=4", "--pattern", "incast", "--time", "30us",
                          "--congestion", control, "--segments", "1us")  # fmt: skip
        assert sum(link["marked"] for link in found["links"]) > 0
        assert not found["stuck"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--fail", "s1-0[3]"], "no time"),
        (["--fail", "s1-0[99]@1us"], "no link"),
        (["--restore", "nobody[1]@1us"], "no link"),
    ],
)
def test_simulate_says_what_cannot_be(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fabric", "simulate", "fat-tree:radix=4", *words]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--load=0", "--load=150%", "--load=x", "--message-size=0", "--time=5"])
def test_simulate_takes_no_strange_numbers(word: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["fabric", "simulate", "fat-tree:radix=4", word])
    assert ended.value.code == 2


def test_a_standard_output_that_is_closed_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", None)  # as Python has it where there is no descriptor 1
    assert main(["fabric", "show", TREE]) == 1
    assert main(["fabric", "show", TREE, "--json"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told == ["softhca fabric: standard output is closed"] * 2
    assert main(["fabric", "show", "fat-tree"]) == 2
    assert "needs radix" in capsys.readouterr().err
