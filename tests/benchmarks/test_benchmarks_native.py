"""What perftest and the program of posts print, and what is read from it."""

import math

import pytest

import native

WRITE = """\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1048576    500              2460.22            908.83 \t\t   0.000909
---------------------------------------------------------------------------------------
"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 8       5000          8.94           2839.58      13.57    \t       65.47       \t222.49 \t\t1004.07
---------------------------------------------------------------------------------------
"""


def test_perftest_is_read():
    assert native.parse_bandwidth(WRITE) == pytest.approx(908.83 * (1 << 20))
    assert native.parse_latency(LATENCY) == 13.57
    assert native.parse_cost("post 107.5 poll 24.0\n") == (107.5, 24.0)


@pytest.mark.parametrize("read", [native.parse_bandwidth, native.parse_latency, native.parse_cost])
def test_what_is_no_table_is_refused(read):
    with pytest.raises(ValueError, match="Unable"):
        read(" Unable to init the socket connection\n")


def test_ratios_are_of_rounds_that_have_both():
    found = {
        "write, two adapter processes": [4.0, math.nan, 3.0],
        "UCX put over TCP": [2.0, 1.0, 1.0],
        "send latency, one adapter process": [50.0],
        "perf latency, embedded": [10.0],
    }
    assert native.ratios(found) == [
        ["write, two adapter processes / UCX put over TCP", "2.50", "2.00, 3.00", "≥ 2: yes"],
        ["send latency, one adapter process / perf latency, embedded", "5.00", "5.00", "≤ 3: no"],
    ]
