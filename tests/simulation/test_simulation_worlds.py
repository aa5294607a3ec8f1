"""Worlds: the same number gives the same bytes, faults reach the adapters, and no rule is broken."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from softhca.links.faults import FaultsError
from softhca.machine.primitives import BODY
from softhca.simulation.campaign import run_campaign
from softhca.simulation.runner import ScenarioError, run_world
from softhca.simulation.scenarios import QUICK, SCENARIOS
from softhca.simulation.trace import Trace
from softhca.wire.raw import RAW_IPV6
from softhca.wire.raw_packet import decode_raw

GOLDEN = {
    "rc-chaos": "5d1a0540c104b0fc86986a4753ff59e9",
    "uc-chaos": "e5ec317429198379e244aa385297f3fb",
    "native-chaos": "da52fec1077ce985b5c268c02cb1cbe6",
    "rc-crash": "ddf4dd819a3fa488368467a3a5400ad4",
    "ud-chaos": "48449288c2f634b76bc511e70c67d327",
    "swap-under-load": "47ad7324efe1d68134dc3dc5d1a47576",
    "migrate-under-load": "957a41c369b6f175774665bdaf2adc0d",
    "window-forged": "fd77800d12c843f40f05c81286bbd1b9",
    "cm-under-loss": "accc8ddd4fbedb3fe7d30eaa5238455c",
    "stale-connection": "2ad6eb80063961987b9ce21ee8f147fd",
    "port-failover": "5649ce6aefaf72b508d697ab3df2543e",
    "lap-failover": "8cd7b51ab2853800e86b9faace64f156",
    "rd-chaos": "560df05ca0f8e54d3f15f6f612e570ca",
    "ecn-incast": "f038dc0cca096e2572b3cdcfd1b8ab18",
    "pfc-incast": "5b3944ff8ef14ee4daa5679a3fcc01d0",
    "lossy-incast": "cb914f2f63f182c89edcdbb9747e8807",
    "ecn-uc": "11e1d00a95486864456dcdb949f903c5",
    "incast": "3c1e06c7a857431adc0b17114685c709",
    "segment-switch": "dff1c3703a1df39d152c0228b2c30379",
    "link-failure-under-load": "6e8556ea285f91b9d14e7684d0e8e792",
    "manager-failover": "457432ff8e3458f86aedb195c4d66d34",
    "native-failover": "aa19196febcd7fd1918473920dd68c3d",
    "native-lap": "39805fd856ddb2a497685bd59c0bc937",
    "stream-under-loss": "25394a95b88e707899335348b5af1fe3",
    "datagram-sockets": "9be5566c79805dda5b89ea007814625e",
    "torn-writes": "6af8869cfc9c68eaebe2f2996d8be03f",
    "xrc-chaos": "b372d2dd71d4de6fbc5a097cf6249aa1",
    "atomic-write-flush": "b244812e943b19e4dca9bdc016d65e10",
    "native-rd": "2ff44299523c07ebac470857a1530fdf",
}
"""Digests with seed 1.  Whoever changes what adapters send changes them knowingly."""

PROGRAM = """
import sys
ballast = bytearray(int(sys.argv[1]))
from softhca.machine.primitives import BODY
from softhca.simulation.campaign import run_campaign
from softhca.simulation.runner import run_world
print(run_world("rc-chaos", 1).digest)
"""


def lines_of(name, seed, faults=""):
    lines = []
    outcome = run_world(name, seed, faults, Trace(lines.append))
    return outcome, [json.loads(line) for line in lines]


@functools.cache
def first_of(name):
    """The world of seed 1, which several tests look at."""
    return run_world(name, 1)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_seed_gives_the_same_digest_for_ever_in_both_modes(name):
    assert first_of(name).digest == GOLDEN[name]


@pytest.mark.parametrize(("hash_seed", "ballast"), [("1", "1000"), ("77", "30000000")])
def test_another_process_with_other_hashes_and_addresses_gives_the_same_digest(hash_seed, ballast):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, ballast], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == GOLDEN["rc-chaos"]


def test_another_seed_and_other_faults_give_another_digest():
    worlds = ("rc-mix", 1, ""), ("rc-mix", 2, ""), ("rc-mix", 1, "loss=5%")
    digests = {run_world(*world).digest for world in worlds}
    assert len(digests) == 3


def test_the_trace_tells_every_packet_and_what_became_of_it():
    outcome, lines = lines_of("rc-loss", 3, "loss=10%")
    sent = [line for line in lines if line["event"] == "sent"]
    lost = [line for line in lines if line["event"] == "lost"]
    received = [line for line in lines if line["event"] == "received"]
    assert len(sent) == outcome.packets == len(lost) + len(received)
    assert lost
    assert {line["reason"] for line in lost} <= {"loss", "burst"}
    assert all({"time_ns", "adapter", "qp", "opcode", "psn", "length_bytes"} <= set(line) for line in sent)
    assert [line["time_ns"] for line in lines] == sorted(line["time_ns"] for line in lines)


def test_raw_datagrams_go_with_every_service_and_their_lines_name_no_queue_pair():
    outcome, lines = lines_of("raw-loss", 2)
    sent = [line for line in lines if line["event"] == "sent"]
    assert len(sent) == outcome.packets > 100
    assert not any({"qp", "opcode", "psn"} & set(line) for line in sent)
    assert {line["reason"] for line in lines if line["event"] == "lost"} == {"loss"}
    packets = []
    run_world("raw-mix", 2, tap=lambda now, event, source, target, data: packets.append((event, data)))
    found = [decode_raw(data) for event, data in packets if event == "sent"]
    assert {RAW_IPV6, 0x86DD, 0x9000, 0xFFFF, 0x9003} == {packet.service for packet in found}
    assert all(packet.vcrc_ok for packet in found)


@pytest.mark.parametrize("name", QUICK)
def test_no_rule_is_broken_in_a_sample_of_every_scenario(name):
    assert first_of(name).violations == ()
    if BODY == "compiled":  # a campaign has the others
        assert run_world(name, 2).violations == ()


@pytest.mark.skipif(BODY != "compiled", reason="as many worlds as there are above")
def test_no_rule_is_broken_in_a_campaign_of_one_world_of_every_scenario():
    tally = run_campaign(list(QUICK), [6])
    assert tally.failures == []
    assert tally.worlds == len(QUICK)


def test_loss_is_repaired_by_sending_again():
    clean, lossy = run_world("rc-mix", 5), run_world("rc-mix", 5, "loss=10%")
    assert lossy.packets > clean.packets
    assert lossy.duration_ns > clean.duration_ns
    assert not lossy.violations


def test_damaged_packets_are_dropped_by_their_icrc():
    _, lines = lines_of("rc-corrupt", 1, "corrupt=10%")
    assert any(line.get("reason") == "corrupted" for line in lines)
    assert sum(line.get("drops_icrc", 0) for line in lines if line["event"] == "end") > 0


def test_a_stalled_adapter_takes_nothing_while_it_stands_still():
    outcome, lines = lines_of("rc-mix", 1, "stall=200us/100us")
    arrivals = {line["time_ns"] for line in lines if line["event"] == "received" and line["adapter"] == 2}
    free = {line["time_ns"] for line in lines_of("rc-mix", 1)[1] if line["event"] == "received"}
    assert arrivals != free
    assert not outcome.violations


def test_a_skewed_clock_changes_when_timers_fire_and_breaks_nothing():
    plain, skewed = run_world("rc-loss", 2), run_world("rc-loss", 2, "skew=100000ppm")
    assert plain.digest != skewed.digest
    assert not skewed.violations


def test_a_flapping_and_slow_link_breaks_nothing():
    outcome, lines = lines_of("rc-mix", 4, "flap=50us/10us,bandwidth=100MB/s")
    assert not outcome.violations
    assert any(line.get("reason") == "flap" for line in lines)


def test_a_connection_that_is_cut_for_ever_ends_in_errors_and_flushes():
    outcome, lines = lines_of("partition", 1, "partition=1>2@0ns..")
    assert not outcome.violations
    assert not [line for line in lines if line["event"] == "received" and line["adapter"] == 2]


@pytest.mark.parametrize(
    ("name", "seed", "faults"),
    [
        ("rc-crowd", 930001, "loss=40%,seed=99"),
        ("window-race", 930009, "loss=100%"),
        ("window-race", 3, "loss=40%,seed=99"),
        ("rc-drain", 960101, "loss=40%"),
        ("rc-drain", 960119, "loss=40%"),
        ("rc-drain", 960101, "loss=30%,receives=2"),
        ("lap-failover", 960303, "loss=10%"),
        ("rnr", 960301, "corrupt=20%,delay=200us"),
        ("rnr-naks", 960302, "corrupt=20%,delay=200us"),
        ("migrate-under-load", 970013, "loss=3%,duplicate=10%,reorder=20%"),
        ("native-failover", 970002, "corrupt=2%"),
    ],
)
def test_a_link_that_loses_nearly_all_breaks_nothing(name, seed, faults):
    """Who shares a window gets its turn in time, and whoever gives up has cause."""
    assert run_world(name, seed, faults).violations == ()


def test_psns_pass_their_end():
    _, lines = lines_of("psn-wrap", 1)
    psns = {line["psn"] for line in lines if line["event"] == "sent"}
    assert 0xFFFFF0 in psns
    assert 1 in psns


def test_a_late_receiver_answers_not_ready_and_gets_everything_at_last():
    outcome, lines = lines_of("rnr", 1)
    acknowledgements = [line for line in lines if line.get("opcode") == "RC_ACKNOWLEDGE"]
    assert acknowledgements
    assert not outcome.violations
    assert outcome.duration_ns > 1_000_000


def test_a_scenario_or_fault_that_does_not_exist_is_named():
    with pytest.raises(ScenarioError, match=r"'nothing'.*rc-mix.*srq"):
        run_world("nothing", 1)
    with pytest.raises(FaultsError, match="'nothing'"):
        run_world("rc-mix", 1, "nothing=1")


def test_the_document_names_every_scenario():
    document = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", document.partition("## Faults")[0], re.MULTILINE)
    assert rows == [(scenario.name, scenario.text) for scenario in SCENARIOS.values()]
