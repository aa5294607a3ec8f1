"""``softhca run`` with programs in C."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from native_world import LIMIT_S, checked, needs

from softhca.cli.errors import CommandError
from softhca.cli.native_programs import PRELOAD, decide, needed, obstacle, preloaded, wants_devices
from softhca.cli.shared_adapters import shares_devices

CAPTURES = Path(__file__).parents[1] / "data" / "captures"


def softhca_run(libibverbs, *words, **variables):
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, **checked(), "PYTHONPATH": path, "SOFTHCA_LIBIBVERBS": str(libibverbs),
                   **variables}  # fmt: skip
    return subprocess.run(
        [sys.executable, "-P", "-m", "softhca", "run", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def beside(libibverbs):
    """What gives a program the object for paths alone."""
    return " ".join((*checked().values(), str(libibverbs.with_name("libsofthca-paths.so"))))


def test_a_program_in_c_gets_a_device(libibverbs):
    needs("ibv_devinfo")
    done = softhca_run(libibverbs, "--", "ibv_devinfo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "hca_id:\tsofthca0" in done.stdout
    assert "PORT_ACTIVE" in done.stdout


def test_the_unit_of_the_documents_serves_programs(libibverbs):
    """What stands behind ExecStart in docs/c-programs.md, of this Python and at an address of its own."""
    needs("ibv_devinfo")
    page = (Path(__file__).parents[2] / "docs" / "c-programs.md").read_text()
    command = re.search(r"^ExecStart=(.*)$", page, re.MULTILINE)[1]
    for written, here in (
        ("%h/rdma/bin/softhca", f"{sys.executable} -P -m softhca"), ("udp:eth0", "udp:127.0.0.93"),
        ("@softhca-service", f"@softhca-unit-{os.getpid()}"),
    ):  # fmt: skip
        assert written in command
        command = command.replace(written, here)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        shlex.split(command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as unit:
        try:
            assert unit.stdout.readline() == b"ready 127.0.0.93\n"
            device = f"softhca0=unix:@softhca-unit-{os.getpid()}"
            done = softhca_run(libibverbs, "--", "ibv_devinfo", SOFTHCA_DEVICES=device)
            assert (done.returncode, done.stderr) == (0, "")
            assert "PORT_ACTIVE" in done.stdout
            assert unit.poll() is None  # it stays without a program
        finally:
            unit.terminate()
        assert unit.wait(LIMIT_S) == 0


def requests_of(capture):
    """The requests of a capture: opcode, whether an answer is asked for, PSN from the first one, bytes."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "softhca", "capture", "decode", "--json", str(capture)],
        stdout=subprocess.PIPE, check=True, timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    packets = [each for each in json.loads(done.stdout) if "WRITE" in each["opcode"]]
    assert all(each["icrc_ok"] for each in packets)
    return [
        (each["opcode"], each["headers"]["bth"]["ack_request"], (each["psn"] - packets[0]["psn"]) % (1 << 24),
         each["payload_bytes"], each["headers"].get("reth", {}).get("dma_length_bytes"))
        for each in packets
    ]  # fmt: skip


def test_perftests_requests_are_those_of_softroce(libibverbs, tmp_path, unused_port):
    needs("ib_write_bw")
    test = f"ib_write_bw -F -n 5 -s 4096 -m 1024 -p {unused_port}"
    script = f"""test $SOFTHCA_RANK = 0 && exec {test}
    while ! grep -q ':{unused_port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6; do :; done
    exec {test} 127.0.0.1"""
    capture = tmp_path / "written.pcapng"
    usual = {"SOFTHCA_DEVICES": "softhca0=udp:*?uniform=0"}  # else later ones may be of one length
    done = softhca_run(libibverbs, "-n", "2", "--capture", str(capture), "--", "sh", "-c", script, **usual)
    assert done.returncode == 0, done.stdout + done.stderr
    theirs = requests_of(CAPTURES / "ib_write_bw.pcap")
    assert len(theirs) == 20
    assert list(dict.fromkeys(requests_of(capture))) == theirs


@pytest.mark.parametrize("variables", [{}, {"SOFTHCA_ADAPTER": "process"}])
def test_what_a_shell_starts_gets_a_device(libibverbs, variables):
    needs("ibv_devices")
    done = softhca_run(libibverbs, "--", "sh", "-c", "ibv_devices", **variables)
    assert done.returncode == 0
    assert "softhca0" in done.stdout


def test_ucx_finds_a_device_by_its_files(libibverbs):
    needs("ucx_info")
    done = softhca_run(libibverbs, "--", "ucx_info", "-d", UCX_LOG_LEVEL="error")
    assert done.returncode == 0
    for transport in ("rc_verbs", "ud_verbs"):
        assert re.search(rf"Transport: {transport}\n# +Device: softhca0:1", done.stdout)


@pytest.mark.parametrize("transports", ["ud,self", "rc,ud,self"])
def test_ucx_sends_over_it(libibverbs, transports, unused_port):
    needs("ucx_perftest")
    test = f"ucx_perftest -p {unused_port} -t tag_lat -n 50 -w 5 -s 3000"
    script = f"""{test} > /dev/null & server=$!
    while ! grep -q ':{unused_port:04X} .* 0A ' /proc/net/tcp; do kill -0 $server || exit 1; done
    {test} 127.0.0.1 && wait $server"""
    done = softhca_run(libibverbs, "--", "sh", "-c", script, SOFTHCA_ADAPTER="process", UCX_TLS=transports,
                       UCX_NET_DEVICES="softhca0:1")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^Final: +50 ", done.stdout, re.MULTILINE)


def test_ucx_may_sleep_for_what_came_before_it_armed_its_queues(libibverbs, unused_port):
    needs("ucx_perftest")
    test = f"timeout 40 ucx_perftest -p {unused_port} -t tag_lat -E sleep -n 200 -w 5"
    script = f"""{test} > /dev/null & server=$!
    while ! grep -q ':{unused_port:04X} .* 0A ' /proc/net/tcp; do kill -0 $server || exit 1; done
    {test} 127.0.0.1 && wait $server"""
    done = softhca_run(libibverbs, "--", "sh", "-c", script, SOFTHCA_ADAPTER="process", UCX_TLS="rc,self",
                       UCX_NET_DEVICES="softhca0:1")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_files_elsewhere_are_as_they_are(libibverbs, tmp_path):
    (tmp_path / "own" / "class" / "infiniband" / "x").mkdir(parents=True)
    (tmp_path / "own" / "class" / "infiniband" / "x" / "name").write_text("found\n")
    own = str(tmp_path / "own")
    environment = {"PATH": os.defpath, "LD_PRELOAD": beside(libibverbs), "SOFTHCA_SYSTEM_FILES": own}

    def said(*command, **variables):
        return subprocess.run(command, capture_output=True, text=True, env={**environment, **variables})

    assert said("cat", "/sys/class/infiniband/x/name").stdout == "found\n"
    assert said("cat", "/sys/class/infiniband/x/absent").returncode == 1
    assert said("cat", "/sys/class/infiniband_mad/x").returncode == 1
    assert said("cat", "/sys/class/infiniband/x/name", SOFTHCA_SYSTEM_FILES="").returncode == 1
    assert said("test", "-c", "/dev/infiniband/uverbs0").returncode == 0
    assert said("test", "-c", "/dev/infiniband/rdma_cm").returncode == 1
    assert said("cat", "/etc/hostname").stdout == Path("/etc/hostname").read_text()

ASKS = """
import ctypes, os
here = -100
libc = ctypes.CDLL(None)
node, name, folder = b"/dev/infiniband/uverbs0", b"/sys/class/infiniband/x/name", b"/sys/class/infiniband"
link, room, listed = b"/sys/class/infiniband/link", ctypes.create_string_buffer(512), ctypes.c_void_p()
libc.opendir.restype = libc.readlink.restype = libc.__readlink_chk.restype = ctypes.c_ssize_t
for path in (node, name):
    for call in ("stat", "lstat", "stat64", "lstat64"):
        assert not getattr(libc, call)(path, room), call
    for call in ("__xstat", "__lxstat", "__xstat64", "__lxstat64"):
        assert not getattr(libc, call)(1, path, room), call
    for call in ("fstatat", "fstatat64"):
        assert not getattr(libc, call)(here, path, room, 0), call
    for call in ("__fxstatat", "__fxstatat64"):
        assert not getattr(libc, call)(1, here, path, room, 0), call
    for call in ("open", "open64", "__open_2", "__open64_2"):
        assert getattr(libc, call)(path, os.O_RDONLY) >= 0, call
    for call in ("openat", "openat64", "__openat_2", "__openat64_2"):
        assert getattr(libc, call)(here, path, os.O_RDONLY) >= 0, call
    assert not libc.statx(here, path, 0, 0x7FF, room)
    assert not libc.access(path, os.R_OK)
    assert not libc.faccessat(here, path, os.R_OK, 0)
assert libc.opendir(folder)
assert libc.scandir(folder, ctypes.byref(listed), None, None) == 4
assert libc.scandir64(folder, ctypes.byref(listed), None, None) == 4
assert libc.readlink(link, room, 512) == 1
assert libc.__readlink_chk(link, room, 512, 512) == 1
assert libc.access(b"/sys/class/infiniband/absent", os.R_OK) == -1
assert libc.access(b"/dev/infiniband/rdma_cm", os.R_OK) == -1
"""


def test_every_way_to_ask_for_a_file_is_answered(libibverbs, tmp_path):
    """Those too of programs that were linked with an older C library, as those of wheels are."""
    (tmp_path / "class" / "infiniband" / "x").mkdir(parents=True)
    (tmp_path / "class" / "infiniband" / "x" / "name").write_text("found\n")
    (tmp_path / "class" / "infiniband" / "link").symlink_to("x")
    environment = {
        **os.environ, "LD_PRELOAD": beside(libibverbs), "SOFTHCA_SYSTEM_FILES": str(tmp_path)
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASKS], env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stderr) == (0, "")



def test_which_programs_want_devices(libibverbs, monkeypatch, tmp_path):
    needs("ibv_devices", "rping")
    monkeypatch.setenv("SOFTHCA_LIBIBVERBS", str(libibverbs))
    assert wants_devices(["ibv_devices"])
    assert wants_devices(["/usr/bin/rping", "-s"])
    assert not wants_devices([sys.executable])
    assert not wants_devices(["no-such-program"])
    monkeypatch.setenv("SOFTHCA_LIBIBVERBS", str(tmp_path / "absent"))
    with pytest.raises(CommandError, match="no libibverbs"):
        wants_devices(["ibv_devices"])


@pytest.mark.parametrize(("words", "wanted"), [
    (["sh", "-c", "echo; ibv_devices"], "ibv_devices"),
    (["sh", "-c", "echo no such program"], ""),
    (["env", "A=1", "nice", "-n", "1", "/usr/bin/rping", "-s"], "/usr/bin/rping"),
    (["./script"], "rping"),
    (["bash", "script"], "rping"),
    (["./other"], ""),
    (["make", "all"], "ibv_devices"),
    ([sys.executable, "starts.py"], "rping"),
    ([sys.executable, "speaks.py"], ""),
])  # fmt: skip
def test_what_a_shell_a_script_or_a_tool_names(libibverbs, monkeypatch, tmp_path, words, wanted):
    needs("ibv_devices", "rping")
    monkeypatch.setenv("SOFTHCA_LIBIBVERBS", str(libibverbs))
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "script": "#!/bin/sh\nrping -s &\n",
        "other": "#!/bin/sh\necho it\n",
        "Makefile": "all:\n\tibv_devices\n",
        "starts.py": "import subprocess\nsubprocess.run(['rping', '-s'])\n",
        "speaks.py": "# as rping does\n",
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    decision = decide(words)
    assert decision.wanted == bool(wanted)
    assert f"may start {wanted}" in decision.reason or not wanted


def test_what_it_says_of_a_program_and_why(libibverbs, tmp_path):
    needs("ibv_devices")
    done = softhca_run(libibverbs, "--explain", "--", "sh", "-c", "ibv_devices")
    assert "softhca0" in done.stdout
    assert "an adapter process for each device, and libibverbs preloaded: sh may start ibv_dev" in done.stderr
    (tmp_path / "static.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", tmp_path / "static", tmp_path / "static.c"], check=True)
    done = softhca_run(libibverbs, "--explain", "--", str(tmp_path / "static"))
    assert "is static: no library can be given to it" in done.stderr


@pytest.mark.parametrize(("scope", "said"), [("0\n", ""), ("1\n", ""), ("2\n", "ptrace_scope=1"), ("x", "")])
def test_what_of_the_machine_keeps_adapters_from_memory(monkeypatch, scope, said):
    monkeypatch.setattr(Path, "read_text", lambda path: scope)
    assert said in obstacle()
    assert bool(said) == bool(obstacle())


def test_the_library_stands_before_what_is_preloaded_already(libibverbs, monkeypatch, tmp_path):
    monkeypatch.setenv("SOFTHCA_LIBIBVERBS", str(libibverbs))
    both = f"{libibverbs} {libibverbs.with_name('libsofthca-paths.so')}"
    assert preloaded({}) == {PRELOAD: both}
    assert preloaded({PRELOAD: "one.so:two.so"}) == {PRELOAD: f"{both} one.so two.so"}
    assert preloaded({PRELOAD: "one.so /lib/libasan.so.8:two.so"}) == {
        PRELOAD: f"/lib/libasan.so.8 {both} one.so two.so"
    }
    monkeypatch.setenv("SOFTHCA_LIBIBVERBS", str(tmp_path / "absent"))
    assert preloaded({PRELOAD: "one.so"}) == {}


def test_adapter_processes_are_for_programs_in_c_unless_the_user_says_something_else():
    assert shares_devices({}, True)
    assert not shares_devices({}, False)
    assert shares_devices({"SOFTHCA_ADAPTER": "process"}, False)
    assert not shares_devices({"SOFTHCA_ADAPTER": "embedded"}, True)


def test_files_that_are_no_programs(tmp_path):
    image = Path(sys.executable).resolve().read_bytes()
    cases = {
        "empty": b"", "script": b"#!/bin/sh\n", "head": image[:64], "torn": image[:600],
        "other": image[:4] + b"\x01" + image[5:200], "segments": image[:32] + b"\xff" * 8 + image[40:4096],
    }  # fmt: skip
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        assert needed(tmp_path / name) is None, name
    assert needed(tmp_path / "absent") is None
    assert needed(Path(sys.executable).resolve())
