"""What a performance test is made of, and which words do not go together: the plan alone, nothing is run."""

import pytest

from softhca.cli.errors import UsageError
from softhca.cli.main import build_parser
from softhca.cli.perf import document_of, peer_arguments
from softhca.cli.perf_bandwidth import Measured
from softhca.cli.perf_ends import Outcome
from softhca.cli.perf_mailbox import terms_of
from softhca.cli.perf_plan import TESTS, plan_of
from softhca.cli.perftest_exchange import Report
from softhca.mailbox.hashes import ALGORITHMS


def plan(*words):
    return plan_of(build_parser("perf").parse_args(["perf", *words]))


@pytest.mark.parametrize(("words", "said"), [
    ("read-bw --qp-type UC", "RC only"),
    ("write-bw --link shm --qp-type UC", "RC queue pairs"),
    ("mailbox-bw --link shm", "RC queue pairs"),
    ("write-bw --link shm --faults loss=1%", "go with --link udp"),
    ("send-lat -q 2", "one queue pair"),
    ("mailbox-bw -q 2", "one queue pair"),
    ("atomic-bw -s 16", "8 bytes"),
    ("send-lat -b", "-b goes with"),
    ("mailbox-bw -b", "-b goes with"),
    ("read-lat --reversed", "--reversed goes with"),
    ("mailbox-bw --reversed", "--reversed goes with"),
    ("write-bw -b --reversed", "exclude each other"),
    ("atomic-bw -a", "one message size"),
    ("mailbox-lat -a", "one message size"), ("mailbox-bw -s 67108737", "up to 67108736 bytes"),
    ("send-bw -a -s 64", "exclude each other"),
    ("send-bw -a --seconds 1", "not with --seconds"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_before_anything_is_made(words, said):
    with pytest.raises(UsageError, match=said):
        plan(*words.split())


@pytest.mark.parametrize("words", [
    "write-bw --link shm", "write-bw --faults loss=1%", "mailbox-bw -s 100", "atomic-bw -s 8", "send-bw -b",
    "read-bw --reversed", "send-lat -a", "send-bw -a -n 5", "send-bw -q 7",
])  # fmt: skip
def test_what_goes_together_is_a_plan(words):
    assert plan(*words.split()).test == words.split()[0]


def test_sizes_and_amounts_that_nobody_has_named():
    sizes = {"bw": 65_536, "lat": 2}
    for test in TESTS:
        verb, kind = test.split("-")
        expected = {"atomic": 8, "mailbox": 64}.get(verb, sizes[kind])
        assert plan(test).size_bytes == expected
        assert plan(test).iterations == (5000 if test == "write-bw" else 1000)
    assert plan("send-bw", "--qp-type", "UD").size_bytes == 1024
    assert plan("send-lat", "--qp-type", "UD").size_bytes == 2
    assert plan("send-bw", "--seconds", "2").iterations == 0
    assert plan("send-bw", "-n", "3").iterations == 3


@pytest.mark.parametrize(("words", "size"), [("-a", 8 << 20), ("-a --qp-type UD", 4096)])
def test_memory_is_as_large_as_the_last_of_all_sizes(words, size):
    assert plan("send-bw", *words.split()).size_bytes == size


def arguments(*words):
    parsed = build_parser("perf").parse_args(["perf", *words])
    return peer_arguments(parsed, plan_of(parsed))


@pytest.mark.parametrize(("words", "depth"), [
    ("send-bw -t 7", False), ("send-bw -t 7 -b", True), ("send-bw -t 7 --reversed", True),
    ("send-bw -b", False),
])  # fmt: skip
def test_a_peer_that_asks_too_is_told_how_much_is_posted(words, depth):
    found = arguments(*words.split())
    assert ("--tx-depth" in found) is depth
    assert not depth or found[found.index("--tx-depth") + 1] == "7"


def test_a_peer_is_told_the_one_size_or_that_all_come_and_the_link():
    found = arguments("send-bw", "-s", "77", "--link", "shm")
    assert found[found.index("--size") + 1] == "77"
    assert found[found.index("--link") + 1] == "shm"
    assert "-a" not in found
    assert "--size" not in arguments("send-bw", "-a")
    assert "-a" in arguments("send-bw", "-a")


def test_a_document_has_each_size_with_its_figures_and_the_peers():
    parsed = build_parser("perf").parse_args(["perf", "send-bw", "-a", "-b"])
    found = document_of(parsed, plan_of(parsed), [
        Outcome(2, Measured(10, 1_000_000_000), Report(2, 10, 0.0, 3.0, 0.5)), Outcome(4, Measured(0, 0)),
    ])  # fmt: skip
    first, second = found["sizes"]
    assert (first["size_bytes"], first["bandwidth_bytes_per_s"], first["iterations"]) == (2, 20, 10)
    assert (first["peer_bandwidth_bytes_per_s"], first["peer_message_rate_per_s"]) == (3 << 20, 500_000)
    assert (second["size_bytes"], second["message_rate_per_s"]) == (4, 0)
    assert (second["peer_bandwidth_bytes_per_s"], second["peer_message_rate_per_s"]) == (None, None)


@pytest.mark.parametrize(("words", "depth", "batch", "receives"), [
    ("", 128, 16, 512), ("-t 5", 5, 5, 32), ("-t 1", 1, 1, 16), ("-t 100", 100, 16, 400),
    ("--post-list 100", 400, 100, 1600), ("--post-list 7", 126, 7, 512), ("-q 1000", 16, 16, 64),
    ("--post-list 30 -q 300", 30, 30, 128),
])  # fmt: skip
def test_queues_hold_whole_chains_and_four_receives_a_send(words, depth, batch, receives):
    found = plan("send-bw", *words.split())
    assert (found.depth, found.batch, found.receive_depth) == (depth, batch, receives)
    latency = plan("send-lat")
    assert (latency.depth, latency.batch, latency.receive_depth) == (32, 1, 512)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(("size", "slots"), [("1", 8192), ("8", 8192), ("9", 8192), ("67108736", 4)])
def test_a_mailbox_has_room_for_messages_of_every_size(name, size, slots):
    made = terms_of(plan("mailbox-lat", "-s", size, "--hash", name))
    assert (made.fixed_bytes, made.slots) == (int(size), slots)
