"""The commands between two real processes, each with its own adapter."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from machine_speed import limit_s
from softhca.cli.capture import decoded
from softhca.machine.primitives import BODY
from softhca.runtime.same_host_limits import unsupported
from softhca.wire.captures import read_capture

TIMEOUT_S = limit_s(120)
EXAMPLES = Path(__file__).parents[2] / "examples"
FIGURES = ["min", "p50", "p99", "max"]


def softhca(*words, **options):
    command = [sys.executable, "-m", "softhca", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, **options)


def document(*words):
    """The JSON document of a command that succeeds."""
    done = softhca(*words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def asked():
    """What `document` is, by commands of one process after the other.  The peer of each is a process of its
    own, which begins as a fork.
    """
    words = [sys.executable, str(Path(__file__).with_name("forked_peers.py"))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(*words):
            process.stdin.write(json.dumps([*words, "--json"]) + "\n")
            process.stdin.flush()
            status, said, error = json.loads(process.stdout.readline())
            assert (status, error) == (0, ""), error
            return json.loads(said)

        yield ask
        process.stdin.close()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def perf(asked):
    return lambda test, *options: asked("perf", test, "--iters", "50", *options)


def test_devinfo_tells_devices_ports_and_gids():
    (device,) = document("devinfo")["devices"]
    assert device["name"] == "softhca0"
    assert device["limits"]["max_qp"] > 0
    (port,) = device["ports"]
    assert port["port"] == 1
    assert port["active_mtu_bytes"] in (256, 512, 1024, 2048, 4096)
    assert port["gids"][0]["address"].startswith("127.0.0.")
    assert port["gids"][0]["gid"] == f"::ffff:{port['gids'][0]['address']}"


def test_devinfo_of_a_device_that_is_not_there_is_status_2():
    done = softhca("devinfo", "-d", "mlx5_0")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_devices_that_cannot_be_are_one_line_and_status_2():
    done = softhca("devinfo", env={**os.environ, "SOFTHCA_DEVICES": "softhca0=carrier-pigeon:1"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("test", "service", "size"), [
    ("write-bw", "RC", 65536), ("write-bw", "UC", 4096), ("read-bw", "RC", 8192), ("send-bw", "RC", 5000),
    ("send-bw", "UD", 512), ("atomic-bw", "RC", 8), ("write-lat", "RC", 8), ("write-lat", "UC", 300),
    ("read-lat", "RC", 8), ("send-lat", "RC", 64), ("send-lat", "UC", 65), ("send-lat", "UD", 100),
    ("atomic-lat", "RC", 8), ("mailbox-bw", "RC", 100), ("mailbox-lat", "RC", 64),
])  # fmt: skip
def test_perf_prints_exactly_the_fixed_fields(perf, test, service, size):
    result = perf(test, "--qp-type", service, "--size", str(size))
    assert list(result) == [
        "test", "qp_type", "link", "size_bytes", "iterations", "bandwidth_bytes_per_s", "message_rate_per_s",
        "latency_us", "compiled",
    ]  # fmt: skip
    assert (result["test"], result["qp_type"], result["link"]) == (test, service, "udp")
    assert (result["size_bytes"], result["iterations"]) == (size, 50)
    assert result["compiled"] is (BODY == "compiled")
    assert list(result["latency_us"]) == FIGURES
    figures = [result["latency_us"][name] for name in FIGURES]
    assert 0 < figures[0] <= figures[1] <= figures[2] <= figures[3]
    assert result["bandwidth_bytes_per_s"] == pytest.approx(result["message_rate_per_s"] * size)


@pytest.mark.parametrize(("test", "service"), [
    ("write-bw", "RC"), ("read-bw", "RC"), ("send-bw", "RC"), ("send-bw", "UD"),
])  # fmt: skip
def test_perf_goes_both_ways_at_once_and_tells_the_peers_figures(perf, test, service):
    result = perf(test, "--qp-type", service, "-b", "-q", "2", *(("-s", "512") if service == "UD" else ()))
    assert result["iterations"] == 100
    assert min(result["bandwidth_bytes_per_s"], result["peer_bandwidth_bytes_per_s"]) > 0
    assert result["peer_message_rate_per_s"] > 0


@pytest.mark.parametrize("test", ["atomic-bw", "send-bw"])
def test_perf_reversed_moves_what_the_client_was_told(perf, test):
    result = perf(test, "--reversed", "-q", "2")
    assert result["iterations"] == 100
    assert result["bandwidth_bytes_per_s"] > 0
    assert result["latency_us"] == dict.fromkeys(FIGURES, 0.0)


@pytest.mark.parametrize("way", [["-b"], ["--reversed"]])
@pytest.mark.parametrize("test", ["write-bw", "send-bw"])
def test_perf_for_a_time_ends_in_every_direction(asked, test, way):
    result = asked("perf", test, "--seconds", "0.3", "--size", "64", *way)
    assert result["iterations"] > 0


@pytest.mark.parametrize(("words", "sizes"), [
    (["send-bw", "-n", "3", "-b"], 23), (["write-bw", "-n", "2", "-b"], 23),
    (["send-bw", "-n", "2", "--reversed"], 23), (["send-bw", "-n", "20", "--qp-type", "UD"], 12),
    (["send-lat", "-n", "2", "--qp-type", "UD"], 12), (["write-lat", "-n", "2"], 23),
])  # fmt: skip
def test_perf_runs_through_all_sizes(asked, words, sizes):
    result = asked("perf", *words, "-a")
    assert [each["size_bytes"] for each in result["sizes"]] == [2 << power for power in range(sizes)]
    assert {each["iterations"] for each in result["sizes"]} == {int(words[2])}


OTHERWISE = "both ends must be given the same"


@pytest.mark.parametrize(("server", "client", "said"), [
    (["send-bw"], ["send-bw", "-b"], OTHERWISE), (["send-bw", "-b"], ["send-bw"], OTHERWISE),
    (["write-bw"], ["write-bw", "-b"], OTHERWISE), (["write-bw", "-b"], ["write-bw"], OTHERWISE),
    (["write-bw"], ["write-bw", "--reversed"], OTHERWISE),
    (["send-bw"], ["send-bw", "--reversed"], OTHERWISE), (["send-bw"], ["send-bw", "-a"], "goes on"),
    (["send-bw", "-a"], ["send-bw"], "closed"), (["write-bw", "-q", "2"], ["write-bw", "-q", "3"], OTHERWISE),
])  # fmt: skip
def test_ends_that_were_told_otherwise_end_in_one_line(server, client, said, free_port):
    """Each within its ``--silence``: nobody has to be killed.  The first to see it says so; the other one may
    only see that its peer has gone.  What silence alone shows takes no longer than that; what else is said
    comes before it.
    """
    silence = "0.5" if said == OTHERWISE else "60"
    common = ["-n", "20", "--silence", silence, "--port", str(free_port)]
    environment = {**os.environ, "SOFTHCA_DEVICES": "softhca0=udp:*"}
    process = subprocess.Popen(
        [sys.executable, "-m", "softhca", "perf", *server, *common, "--listen"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        wait_listening(free_port)
        done = softhca("perf", *client, *common, "127.0.0.1", env=environment)
        _, error = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        process.communicate()
    ends = [(process.returncode, error), (done.returncode, done.stderr)]
    assert any(status == 1 and said in line for status, line in ends), ends
    assert all(line.count("\n") == status and status in (0, 1) for status, line in ends), ends


def wait_listening(port):
    """Until somebody listens, which is not tried by a connection: the one that is taken is the client's."""
    wanted = f":{port:04X} "
    for _ in range(int(TIMEOUT_S * 20)):
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            if any(wanted in line and " 0A " in line for line in Path(table).read_text().splitlines()):
                return
        time.sleep(0.05)
    raise AssertionError("nobody listens")


def test_perf_counts_the_operations_of_all_queue_pairs(perf):
    assert perf("write-bw", "--qps", "3", "--size", "100")["iterations"] == 150


@pytest.mark.parametrize("test", [
    "write-bw", "send-bw", "write-lat", "send-lat", "read-lat", "mailbox-bw", "mailbox-lat",
])  # fmt: skip
def test_perf_for_a_time_ends(asked, test):
    result = asked("perf", test, "--seconds", "0.3", "--size", "64")
    assert result["iterations"] > 0


@pytest.mark.parametrize("name", ["blake2b", "blake3"])
def test_perf_measures_mailboxes_under_every_hash(perf, name):
    assert perf("mailbox-lat", "--hash", name)["size_bytes"] == 64


@pytest.mark.parametrize("target", ["idle", "busy", "asleep"])
def test_perf_serves_whatever_the_target_does(perf, target):
    assert perf("read-bw", "--target", target, "--size", "1000")["iterations"] == 50


def test_datagram_beyond_the_mtu_is_refused():
    done = softhca("perf", "send-bw", "--qp-type", "UD", "--size", "65536", "--silence", "5")
    assert done.returncode == 2
    assert "MTU" in done.stderr


@pytest.mark.parametrize("service", ["rc", "uc", "ud"])
@pytest.mark.parametrize("options", [[], ["-e"]])
def test_pingpong_returns_what_was_sent(asked, service, options):
    result = asked("pingpong", "--service", service, "-n", "40", "-r", "10", "-s", "1000", "-c", *options)
    assert (result["service"], result["iterations"], result["bytes"]) == (service, 40, 80000)
    assert result["valid"] is True


@pytest.mark.parametrize("queue_pairs", [1, 5])
def test_pingpong_over_a_shared_receive_queue_returns_what_was_sent(asked, queue_pairs):
    words = ["--srq", "-q", str(queue_pairs), "-n", "40", "-r", "10", "-s", "5000", "-c"]
    result = asked("pingpong", *words)
    assert (result["iterations"], result["valid"]) == (40, True)


def test_ping_verifies_every_message(asked):
    result = asked("ping", "-n", "30", "-s", "9000", "-r", "5")
    assert (result["verified"], result["iterations"], result["size_bytes"]) == (30, 30, 9000)
    assert list(result["latency_us"]) == FIGURES


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.mark.parametrize("words", [["ping", "-n", "20"], ["perf", "write-bw", "-n", "20"]])
def test_client_and_server_meet_by_port(words, free_port):
    """Two commands, one started with --listen and one with HOST."""
    command = [sys.executable, "-m", "softhca", *words, "--port", str(free_port)]
    server = subprocess.Popen([*command, "--listen"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        for _ in range(200):
            client = softhca(*words, "--port", str(free_port), "127.0.0.1", "--json")
            if "cannot connect" not in client.stderr or server.poll() is not None:
                break
        assert (client.returncode, client.stderr) == (0, "")
        assert server.wait(TIMEOUT_S) == 0
    finally:
        server.kill()
        server.communicate()


def test_client_without_server_is_one_line_and_status_1(free_port):
    done = softhca("ping", "127.0.0.1", "--port", str(free_port))
    assert done.returncode == 1
    assert done.stderr.startswith("softhca ping: cannot connect")
    assert done.stderr.count("\n") == 1


def test_import_pyverbs_in_a_program_finds_softhca():
    code = "import pyverbs.device as d, pyverbs.qp; print(d.Context.__module__, d.get_device_list()[0].name)"
    done = softhca("run", "--", "python3", "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "softhca.verbs.device b'softhca0'\n"


def test_script_with_an_interpreter_line_finds_softhca(tmp_path):
    script = tmp_path / "prog"
    script.write_text("#!/usr/bin/env python3\nfrom pyverbs import enums\nprint(enums.__name__)\n")
    script.chmod(0o755)
    done = softhca("run", "--", str(script))
    assert (done.returncode, done.stdout) == (0, "softhca.verbs.enums\n")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The capture that the demo wrote, which ended well, and what it said."""
    capture = tmp_path_factory.mktemp("demo") / "demo.pcapng"
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--quick", "--capture", str(capture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return capture, done.stdout


@pytest.fixture(scope="module")
def demo_capture(demo):
    return demo[0]


def test_demo_tells_what_was_made_moved_and_measured(demo):
    """Both adapters, the data's verdicts, a figure in each place, and what to type next."""
    capture, said = demo
    devices = re.findall(r"softhca0 │ +(127[0-9.]+) │ ::ffff:(127[0-9.]+)", said)
    assert len(devices) == len(set(devices)) == 2
    assert all(address == mapped for address, mapped in devices)
    assert said.count("│ right │") == 10
    for name in ("RC RDMA write", "RC RDMA read", "RC fetch and add", "RC send", "UC send", "UD send"):
        assert re.search(rf"│ {name} +│ +[0-9.,]+ µs │ +([0-9.,]+ µs|–) │", said), said
    for way in ("RDMA write by packets", "TCP, to compare", "memcpy, to compare"):
        assert re.search(rf"│ {way} +│ +[0-9.]+ [kMGT]?B/s │", said), said
    assert f"softhca capture decode {capture}" in said
    assert "softhca doctor" in said
    assert "all right" in said


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (Debian package tshark)")
def test_tshark_finds_nothing_malformed_in_the_demos_packets(demo_capture):
    command = ["tshark", "-r", str(demo_capture), "-T", "fields", "-e", "frame.protocols", "-e", "_ws.expert"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    lines = done.stdout.splitlines()
    assert len(lines) > 1000
    for line in lines:
        protocols, _, remarks = line.partition("\t")
        assert ":infiniband" in protocols
        assert "malformed" not in protocols
        assert not remarks


def test_demo_is_right_and_its_capture_decodes(demo_capture):
    with demo_capture.open("rb") as stream:
        records = list(decoded(read_capture(stream)))
    assert len(records) > 1000
    assert all(record["icrc_ok"] for record in records)
    times = [record["time_ns"] for record in records]
    assert times == sorted(times)
    services = {record["opcode"].split("_")[0] for record in records}
    assert services == {"RC", "UC", "UD"}


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
@pytest.mark.parametrize("test", ["write-bw", "write-lat", "read-lat", "send-bw", "send-lat", "atomic-bw"])
def test_perf_runs_through_shared_memory(test):
    result = document("perf", test, "--iters", "50", "--link", "shm")
    assert (result["test"], result["link"]) == (test, "shm")
    assert result["iterations"] >= 50


@pytest.mark.skipif(bool(unsupported()), reason="no same-host paths here")
def test_a_program_runs_through_shared_memory():
    done = softhca("run", "-n", "2", "--link", "shm", "--", sys.executable, str(EXAMPLES / "rc_write.py"))
    assert (done.returncode, done.stderr) == (0, "")
