"""Fault options: their text, their bounds, and that each kind really acts."""

import dataclasses

import pytest

from softhca.links.decisions import Script, TooManyPackets, parse_decisions
from softhca.links.faults import FOREVER_NS, Crash, Faults, FaultsError, Partition
from softhca.links.impairment import Impairment

DATA = bytes(range(200))


def sent(faults, count=400, gap_ns=0):
    """What a link makes of ``count`` packets: deliveries and reasons of loss, each with its number."""
    link = Impairment(faults, "seed", 1, 2)
    deliveries, lost = [], []
    for number in range(count):
        copies = link.send(DATA, number * gap_ns)
        deliveries += [(number, copy) for copy in copies]
        if not copies:
            lost.append((number, link.lost_because))
    return deliveries, lost


def test_a_text_sets_every_option_and_says_itself_again():
    text = (
        "loss=1%,duplicate=0.25,reorder=0.5%,corrupt=2%,truncate=3%,delay=20us,jitter=1.5us,reorder_delay=1ms,"
        "bandwidth=2GB/s,burst=0.1%,burst_length=4,partition=1>2@10ms..60ms,partition=2>1@5ms..,"
        "flap=10ms/1ms,stall=20ms/2ms,skew=200ppm,crash=2@1.5ms..3ms,crash=1@2ms..,cq=12,poll=4us,receives=3,seed=7"
    )
    faults = Faults.parse(text)
    assert faults == Faults(
        0.01, 0.25, 0.005, 0.02, 0.03, 20_000, 1_500, 1_000_000, 2 * 10**9, 0.001, 4,
        (Partition(1, 2, 10_000_000, 60_000_000), Partition(2, 1, 5_000_000, FOREVER_NS)),
        10_000_000, 1_000_000, 20_000_000, 2_000_000, 200,
        (Crash(2, 1_500_000, 3_000_000), Crash(1, 2_000_000)), 12, 4_000, 3, 7,
    )  # fmt: skip
    assert Faults.parse(str(faults)) == faults
    assert str(Faults()) == ""


def test_a_text_changes_only_what_it_names():
    base = Faults(loss=0.5, seed=3)
    assert Faults.parse("delay=5ns", base) == dataclasses.replace(base, delay_ns=5)


@pytest.mark.parametrize(("text", "words"), [
    ("los=1%", ["'los'", "loss", "reorder", "seed"]), ("loss", ["'loss'", "loss=1%"]),
    ("loss=x", ["'x'", "1%"]), ("loss=200%", ["'200%'"]),
    ("loss=nan", ["'nan'"]), ("delay=5", ["'5'", "10us"]),
    ("delay=5h", ["'5h'"]), ("partition=1>2", ["1>2@10ms..60ms"]), ("partition=1>2@5ms..1ms", ["interval"]),
    ("partition=0>2@5ms..", ["adapter 0"]), ("flap=1ms/2ms", ["flap"]),
    ("flap=1ms/1ms", ["flap"]), ("stall=1ms", ["stall"]),
    ("skew=900000ppm", ["skew_ppm"]), ("burst_length=0", ["burst_length_packets"]),
    ("crash=2", ["2@1.05ms..3ms"]), ("crash=0@1ms..", ["adapter 0"]), ("crash=1@3ms..2ms", ["interval"]),
    ("crash=1@3ms..3ms", ["interval"]), ("partition=1>2@3ms..3ms", ["interval"]),
    ("seed=18446744073709551616", ["seed"]),
    ("seed=-1", ["seed"]),
])  # fmt: skip
def test_a_wrong_text_is_one_line_that_names_the_word(text, words):
    with pytest.raises(FaultsError) as error:
        Faults.parse(text)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_without_faults_everything_arrives_whole_in_order_after_the_delay():
    deliveries, lost = sent(Faults(delay_ns=700), gap_ns=10)
    assert not lost
    assert [(copy.time_ns, copy.data, copy.what) for _, copy in deliveries] == [
        (number * 10 + 700, DATA, "passed") for number in range(400)
    ]


def test_loss_takes_about_its_share():
    _, lost = sent(Faults(loss=0.25))
    assert 60 < len(lost) < 140
    assert {reason for _, reason in lost} == {"loss"}


def test_a_burst_takes_neighbours_and_ends_on_a_quiet_link():
    _, lost = sent(Faults(burst_loss=0.02, burst_length_packets=10), count=2_000)
    numbers = [number for number, _ in lost]
    assert numbers
    neighbours = sum(number + 1 in numbers for number in numbers)
    assert neighbours > len(numbers) * 0.7
    _, quiet = sent(Faults(burst_loss=0.02, burst_length_packets=1_000), count=2_000, gap_ns=200_000)
    assert 0 < len(quiet) < 200


def test_duplication_delivers_a_second_equal_copy():
    deliveries, _ = sent(Faults(duplication=0.25))
    assert 460 < len(deliveries) < 540
    assert all(copy.data == DATA for _, copy in deliveries)


def test_reordering_lets_others_pass_and_jitter_does_not():
    held, _ = sent(Faults(reordering=0.2), gap_ns=100)
    order = [number for number, copy in sorted(held, key=lambda item: item[1].time_ns)]
    assert order != sorted(order)
    late, _ = sent(Faults(jitter_ns=50_000), gap_ns=100)
    times = [copy.time_ns for _, copy in late]
    assert times == sorted(times)
    assert any(copy.time_ns - number * 100 > 10_000 for number, copy in late)


def test_corruption_flips_one_to_three_bits_anywhere():
    deliveries, _ = sent(Faults(corruption=1.0), count=2_000)
    touched, flips = set(), set()
    for _, copy in deliveries:
        difference = int.from_bytes(copy.data, "big") ^ int.from_bytes(DATA, "big")
        flips.add(difference.bit_count())
        touched |= {at for at in range(len(DATA)) if copy.data[at] != DATA[at]}
    assert flips == {1, 2, 3}
    assert len(touched) == len(DATA)


def test_truncation_leaves_a_shorter_beginning():
    deliveries, _ = sent(Faults(truncation=1.0))
    assert all(len(copy.data) < len(DATA) and DATA.startswith(copy.data) for _, copy in deliveries)
    assert len({len(copy.data) for _, copy in deliveries}) > 50


def test_bandwidth_spaces_packets_by_their_length():
    deliveries, _ = sent(Faults(bandwidth_bytes_per_s=1_000_000_000), count=3)
    assert [copy.time_ns for _, copy in deliveries] == [1_200, 1_400, 1_600]


def test_a_partition_cuts_one_direction_for_its_interval():
    faults = Faults(partitions=(Partition(1, 2, 100, 200),))
    _, lost = sent(faults, gap_ns=10)
    assert lost == [(number, "partition") for number in range(10, 20)]
    other = Impairment(faults, "seed", 2, 1)
    assert other.send(DATA, 150)


def test_a_flap_takes_the_link_down_once_a_period_in_both_directions():
    faults = Faults(flap_period_ns=1_000, flap_ns=100)
    _, lost = sent(faults, gap_ns=10)
    assert len(lost) == 40
    assert {reason for _, reason in lost} == {"flap"}
    other = Impairment(faults, "seed", 2, 1)
    assert [n for n in range(400) if not other.send(DATA, n * 10)] == [number for number, _ in lost]


def test_the_seed_of_the_faults_changes_the_dice():
    assert sent(Faults(loss=0.3, seed=1))[1] != sent(Faults(loss=0.3, seed=2))[1]
    assert sent(Faults(loss=0.3, seed=1))[1] == sent(Faults(loss=0.3, seed=1))[1]


def test_no_bit_of_a_decision_is_named_twice():
    assert parse_decisions("1>2#1:corrupted@3+4")[0].values == (3, 4)
    with pytest.raises(FaultsError, match="corrupted"):
        parse_decisions("1>2#1:corrupted@3+3")


def test_links_that_repeat_carry_no_more_packets_than_they_may():
    script = Script([], most_packets=2)
    script.pass_packet()
    script.pass_packet()
    with pytest.raises(TooManyPackets):
        script.pass_packet()


@pytest.mark.parametrize("word", ["1>2#0:lost", "0>1#1:lost", "1>251#1:lost"])
def test_packets_and_adapters_are_counted_from_one(word):
    with pytest.raises(FaultsError, match="is not 1"):
        parse_decisions(word)


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("delay=1.001us", "delay_ns", 1_001), ("delay=0.29us", "delay_ns", 290), ("delay=7ns", "delay_ns", 7),
        ("delay=3µs", "delay_ns", 3_000), ("delay=4ms", "delay_ns", 4_000_000),
        ("delay=1s", "delay_ns", 1_000_000_000),
        ("bandwidth=5", "bandwidth_bytes_per_s", 5), ("bandwidth=5B/s", "bandwidth_bytes_per_s", 5),
        ("bandwidth=3kB/s", "bandwidth_bytes_per_s", 3_000),
        ("bandwidth=1.5MB/s", "bandwidth_bytes_per_s", 1_500_000),
        ("bandwidth=2GB/s", "bandwidth_bytes_per_s", 2_000_000_000),
        ("seed=18446744073709551615", "seed", (1 << 64) - 1), ("skew=500000ppm", "skew_ppm", 500_000),
    ],
)  # fmt: skip
def test_a_number_is_what_its_unit_says(text, name, value):
    assert getattr(Faults.parse(text), name) == value
