"""What each program printed once, and what is read from it."""

import json

import pytest
from bench import fabrics, machine, measure, mpi, softhca_perf, standing, tcp_tools

UCX_FINAL = """\
+--------------+--------------+------------------------------+---------------------+-----------------------+
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
|     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
                        5000      9.572   184.517   180.250      338.72     346.50        5420        5548
"""
UCX_WORD = "Final:   20000      4.251     4.301     4.310        1.77       1.76      232504      231000\n"
FI_PINGPONG = """\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      1k      =1k      125k        0.49s      0.26     243.43       0.00
"""
SOCKPERF = """\
sockperf: Test ended
sockperf: \x1b[2;35m====> avg-latency=11.929 (std-dev=96.793)\x1b[0m
sockperf: Summary: Latency is 11.929 usec
sockperf: ---> <MAX> observation = 2635.784
sockperf: ---> percentile 99.999 = 2635.784
sockperf: ---> percentile 99.900 = 1888.971
sockperf: ---> percentile 99.000 =    9.373
sockperf: ---> percentile 50.000 =    6.144
sockperf: ---> percentile 25.000 =    5.918
sockperf: ---> <MIN> observation =    5.448
"""
IPERF3 = """{"start": {"version": "iperf 3.12"}, "end": {
 "sum_sent": {"bytes": 1866924033, "bits_per_second": 14929465259.0},
 "sum_received": {"start": 0, "end": 1.000397, "bytes": 1866924032,
  "bits_per_second": 14929465258.292458}}}"""
PERF = """{"test": "write-bw", "qp_type": "RC", "link": "udp", "size_bytes": 65536, "iterations": 31280,
 "bandwidth_bytes_per_s": 1024000000.0, "message_rate_per_s": 15625.0,
 "latency_us": {"min": 10.5, "p50": 20.0, "p99": 30.25, "max": 99.0}, "compiled": true}"""
IDLE = """\
| adapter | share of one processor | wake-ups |
| --- | --- | --- |
| embedded | 0.005% | 0 |
| process | 1.250% | 3 |
"""
PROC_NET_TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: 0100007F:1F91 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 12 1
"""
PROC_NET_UDP = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref
  100: 0100007F:1F92 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 13 2 0 0
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (UCX_FINAL, (5000, 9.572, 346.50 * (1 << 20), 5548)),
        (UCX_WORD, (20000, 4.251, 1.76 * (1 << 20), 231000)),
        (UCX_FINAL + UCX_WORD, (20000, 4.251, 1.76 * (1 << 20), 231000)),
    ],
)
def test_of_ucx_perftest_the_last_line_s_overall_averages_are_taken(text, found):
    assert fabrics.parse_ucx(text) == pytest.approx(found)


def test_the_columns_of_fi_pingpong_have_their_names():
    found = fabrics.parse_fi_pingpong(FI_PINGPONG)
    assert found["usec/xfer"] == 243.43
    assert (found["bytes"], found["#sent"], found["#ack"], found["time"]) == (64, 1000, 1000, 0.49)


def test_percentiles_of_sockperf():
    assert tcp_tools.parse_sockperf(SOCKPERF) == {"min": 5.448, "p50": 6.144, "p99": 9.373, "max": 2635.784}


def test_of_iperf3_what_was_received_counts():
    assert tcp_tools.parse_iperf3(IPERF3) == (14929465258.292458 / 8, 1866924032)


def test_a_result_of_softhca_perf():
    figure = softhca_perf.parse(PERF)
    assert (figure.bandwidth_bytes_per_s, figure.rate_per_s) == (1.024e9, 15625)
    assert figure.latency_us["p99"] == 30.25
    assert figure.extra == {"operations": 31280, "compiled": 1}


def test_the_mpi_program_s_document_is_found_behind_what_mpirun_says():
    text = 'mpirun: a warning\n{"put+flush": {"latency_us": {"p50": 0.4}}, "messages": {"rate_per_s": 2e6}}\n'
    found = mpi.parse(text)
    assert found["put+flush"].latency_us == {"p50": 0.4}
    assert found["messages"].rate_per_s == 2e6


def test_the_table_of_the_idle_benchmark():
    found = standing.parse_idle(IDLE)
    assert found == {"embedded share": pytest.approx(5e-5), "embedded wakeups": 0,
                     "process share": pytest.approx(0.0125), "process wakeups": 3}  # fmt: skip
    with pytest.raises(measure.Absent):
        standing.parse_idle(IDLE.replace("process", "elsewhere"))


@pytest.mark.parametrize(
    "parse",
    [fabrics.parse_ucx, fabrics.parse_fi_pingpong, tcp_tools.parse_sockperf, tcp_tools.parse_iperf3,
     softhca_perf.parse, mpi.parse],
)  # fmt: skip
@pytest.mark.parametrize("text", ["", "nothing of use\n"])
def test_words_that_tell_nothing_are_refused(parse, text):
    with pytest.raises(ValueError, match=r".+"):
        parse(text)


def test_an_error_of_iperf3_is_told():
    with pytest.raises(ValueError, match="unable to connect"):
        tcp_tools.parse_iperf3(json.dumps({"error": "unable to connect to server", "end": {}}))


@pytest.mark.parametrize(("port", "there"), [(8080, True), (8081, False), (8082, True), (8083, False)])
def test_who_listens_is_seen(port, there):
    assert measure.listens(port, PROC_NET_TCP + PROC_NET_UDP) is there


def test_a_program_that_is_not_there_is_absent():
    with pytest.raises(measure.Absent, match="no-such-program is not installed"):
        measure.run(["no-such-program"])


def test_a_program_that_fails_says_why():
    with pytest.raises(measure.Absent, match=r"sh ended with status 3: broken$"):
        measure.run(["sh", "-c", "echo first >&2; echo broken >&2; exit 3"])
    assert measure.run(["sh", "-c", "echo well; exit 3"], statuses=(0, 3)).output == "well\n"


def test_a_server_that_does_not_listen_is_told_and_ended():
    with pytest.raises(measure.Absent, match="sh does not listen"):
        measure.run(["true"], server=["sh", "-c", "exit 1"], port=measure.free_port())


@pytest.mark.parametrize(
    ("name", "text", "version"),
    [
        ("iperf3", "iperf 3.12 (cJSON 1.7.15)\nLinux", "3.12"),
        ("sockperf", "sockperf, version 3.7-no.git\n   compiled 2021-08-23", "3.7-no.git"),
        ("UCX", "# Library version: 1.13.1\n# Library path", "1.13.1"),
        ("libfabric", "fi_info: 1.17.0\nlibfabric: 1.17.0\n", "1.17.0"),
        ("Open MPI", "mpirun (Open MPI) 4.1.4\n", "4.1.4"),
        ("UCX", "nothing", "?"),
    ],
)
def test_versions_are_read(name, text, version):
    assert machine.found_version(text, machine.PROGRAMS[name][1]) == version


def test_the_processor_has_a_name():
    assert machine.processor_model("processor : 0\nmodel name\t: Some CPU @ 2 GHz\n") == "Some CPU @ 2 GHz"
