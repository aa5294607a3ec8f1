"""What a program in C does after empty polls: the rules of ``poll_pace.h``, in time that a test makes."""

import ctypes
import subprocess

import pytest

from softhca.native import build

CONTENDED_NS, PEER_NS, MEMORY_NS = 400_000, 1_000_000, 20_000_000
SHORTEST_NS, LONGEST_NS, FRACTION = 20_000, 500_000, 8
SOURCE = """
#include "poll_pace.h"
uint64_t nap_ns(const struct poll_pace *pace, uint64_t now_ns) { return pace_nap_ns(pace, now_ns); }
void yielded(struct poll_pace *pace, uint64_t begin, uint64_t end) { pace_yielded(pace, begin, end); }
"""


class Pace(ctypes.Structure):
    """``struct poll_pace``."""

    _fields_ = (
        ("contended_until_ns", ctypes.c_uint64),
        ("since_ns", ctypes.c_uint64),
        ("long_yields", ctypes.c_uint32),
    )


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    command = build.compiler()
    if command is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("pace")
    (folder / "pace.c").write_text(SOURCE)
    words = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{build.SOURCES}"]
    subprocess.run([*command, *words, folder / "pace.c", "-o", folder / "pace.so"], check=True)
    library = ctypes.CDLL(str(folder / "pace.so"))
    library.nap_ns.argtypes = [ctypes.POINTER(Pace), ctypes.c_uint64]
    library.nap_ns.restype = ctypes.c_uint64
    library.yielded.argtypes = [ctypes.POINTER(Pace), ctypes.c_uint64, ctypes.c_uint64]
    library.yielded.restype = None
    return library


def memory_ns(rules, pace, took_ns):
    """For how long nobody yields after a yield that took so long."""
    end_ns = 10**9 + took_ns
    rules.yielded(pace, 10**9, end_ns)
    return pace.contended_until_ns - end_ns if pace.contended_until_ns > end_ns else 0


def test_a_thread_yields_where_yields_are_short(rules):
    pace = Pace()
    assert rules.nap_ns(pace, 5) == 0
    assert memory_ns(rules, pace, CONTENDED_NS) == 0
    assert rules.nap_ns(pace, 10**9 + CONTENDED_NS) == 0


def test_it_sleeps_where_one_was_long_until_that_is_forgotten(rules):
    pace = Pace(since_ns=10**9)
    assert memory_ns(rules, pace, CONTENDED_NS + 1) == MEMORY_NS
    end_ns = pace.contended_until_ns
    assert rules.nap_ns(pace, end_ns - 1) == LONGEST_NS
    assert rules.nap_ns(pace, end_ns) == 0


@pytest.mark.parametrize(
    ("vain_ns", "nap_ns"),
    [
        (-1, SHORTEST_NS),  # the clock of another thread's poll
        (0, SHORTEST_NS),
        (FRACTION * SHORTEST_NS + FRACTION, SHORTEST_NS + 1),
        (FRACTION * LONGEST_NS - FRACTION, LONGEST_NS - 1),
        (10**9, LONGEST_NS),
    ],
)
def test_it_sleeps_for_a_part_of_what_it_polled_in_vain(rules, vain_ns, nap_ns):
    pace = Pace(contended_until_ns=10**12, since_ns=10**10)
    assert rules.nap_ns(pace, 10**10 + vain_ns) == nap_ns


def test_each_further_long_yield_is_remembered_for_twice_as_long_within_a_bound(rules):
    pace = Pace()
    found = [memory_ns(rules, pace, PEER_NS + 1) for _ in range(4)]
    assert found == [MEMORY_NS, 2 * MEMORY_NS, 4 * MEMORY_NS, 4 * MEMORY_NS]
    assert memory_ns(rules, pace, PEER_NS) == 4 * MEMORY_NS, "perhaps the peer's: no sign of either"
    for _ in range(2):
        assert memory_ns(rules, pace, CONTENDED_NS) >= MEMORY_NS, "what is remembered stays"
    assert pace.long_yields == 0
    assert memory_ns(rules, pace, CONTENDED_NS + 1) == MEMORY_NS
    assert memory_ns(rules, pace, CONTENDED_NS + 1) == MEMORY_NS, "up to a millisecond doubles nothing"
