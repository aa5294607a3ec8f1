"""What programs ask the kernel about RDMA devices: a folder, `rdma`, `ls`, `cat`, and Python's functions."""

import builtins
import io
import json
import os
import subprocess
import sys

import pytest

from machine_speed import limit_s
from softhca import system_files
from softhca.adapter.config import AdapterConfig
from softhca.cli import kernel_files, rdma_tool
from softhca.cli.kernel_files import rate, write_commands, write_devices

TIMEOUT_S = limit_s(60)
DEVICES = "one=udp:127.0.0.9,two=udp:127.0.0.10+udp:127.0.0.11?gids=1,three=unix:@served"


@pytest.fixture
def folder(tmp_path):
    write_devices(tmp_path / "sys", DEVICES, True)
    return tmp_path / "sys" / "class" / "infiniband"


def text(file):
    return file.read_text().strip()


def test_the_folder_is_like_the_kernels(folder):
    assert sorted(each.name for each in folder.iterdir()) == ["one", "three", "two"]
    one = folder / "one"
    assert text(one / "node_guid") == "0200:00ff:7f00:0009"
    assert text(one / "node_type") == "1: CA"
    port = one / "ports" / "1"
    assert text(port / "state") == "4: ACTIVE"
    for index in map(str, range(4)):
        assert text(port / "gids" / index) == "0000:0000:0000:0000:0000:ffff:7f00:0009"
        assert text(port / "gid_attrs" / "types" / index) == "RoCE v2"
        assert text(port / "gid_attrs" / "ndevs" / index) == "lo"
    assert text(port / "gids" / "4") == ":".join(["0000"] * 8)
    for kind in ("types", "ndevs"):
        assert len(list((port / "gid_attrs" / kind).iterdir())) == 4
    assert text(port / "pkeys" / "0") == "0xffff"
    assert text(port / "pkeys" / "1") == "0x0000"


def test_it_has_every_port_and_of_a_served_device_the_name(folder):
    assert sorted(each.name for each in (folder / "two" / "ports").iterdir()) == ["1", "2"]
    second = folder / "two" / "ports" / "2"
    assert text(second / "gids" / "0").endswith("7f00:000b")
    assert text(second / "gids" / "1") == ":".join(["0000"] * 8)
    assert [each.name for each in (second / "gid_attrs" / "types").iterdir()] == ["0"]
    assert list((folder / "three").iterdir()) == []


def test_each_address_of_a_port_is_an_entry(tmp_path):
    write_devices(tmp_path, "many=udp:127.0.0.9?addresses=127.0.0.10+2001:db8::7&gids=2", True)
    port = tmp_path / "class" / "infiniband" / "many" / "ports" / "1"
    found = [text(port / "gids" / str(index)) for index in range(4)]
    assert [each[-9:] for each in found] == ["7f00:0009", "7f00:000a", "0000:0007", "0000:0000"]
    for kind in ("types", "ndevs"):
        assert sorted(each.name for each in (port / "gid_attrs" / kind).iterdir())[:2] == ["0", "1"]
    assert text(port / "gid_attrs" / "types" / "2") == "RoCE v2"


def test_the_tables_are_as_long_as_the_adapter_says(folder):
    program = (
        "from softhca.verbs.device import Context\n"
        "with Context(name='one') as context:\n"
        "    port = context.query_port(1)\n"
        "    gid = str(context.query_gid(1, 0))\n"
        "    print(port.gid_tbl_len, port.pkey_tbl_len, gid, context.query_device().fw_version,"
        "          port.active_width, port.active_speed, port.port_cap_flags)"
    )
    environment = {**os.environ, "SOFTHCA_DEVICES": "one=udp:127.0.0.9"}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    gids, pkeys, gid, firmware, width, speed, flags = told.stdout.split()
    port = folder / "one" / "ports" / "1"
    assert len(list((port / "gids").iterdir())) == int(gids)
    assert len(list((port / "pkeys").iterdir())) == int(pkeys)
    assert text(port / "gids" / "0") == gid
    assert text(folder / "one" / "fw_ver") == firmware
    assert text(port / "rate") == rate(int(width), int(speed))
    assert int(text(port / "cap_mask"), 16) == int(flags)


@pytest.mark.parametrize(
    ("width", "speed", "words"),
    [
        (2, 32, "100 Gb/sec (4X EDR)"),  # as the kernel writes them
        (1, 1, "2.5 Gb/sec (1X)"),
        (2, 1, "10 Gb/sec (4X)"),
        (2, 4, "40 Gb/sec (4X QDR)"),
        (8, 2, "60 Gb/sec (12X DDR)"),
        (4, 8, "80 Gb/sec (8X FDR10)"),
        (2, 16, "56 Gb/sec (4X FDR)"),
        (2, 64, "200 Gb/sec (4X HDR)"),
        (16, 128, "200 Gb/sec (2X NDR)"),
    ],
)
def test_a_rate_is_lanes_and_their_speed(width, speed, words):
    assert rate(width, speed) == words


@pytest.mark.parametrize(("width", "speed"), [(0, 32), (3, 32), (2, 0), (2, 3)])
def test_a_link_that_cannot_be_has_no_rate(width, speed):
    with pytest.raises(ValueError, match="no link"):
        rate(width, speed)


def test_an_address_that_is_not_there_leaves_the_name(tmp_path):
    write_devices(tmp_path, "lost=udp:nowhere0", True)
    assert list((tmp_path / "class" / "infiniband" / "lost").iterdir()) == []


def test_rows_are_those_of_rdma(folder):
    assert [row["ifname"] for row in rdma_tool.devices(folder)] == ["one", "three", "two"]
    assert rdma_tool.devices(folder)[0] == {
        "ifindex": 0,
        "ifname": "one",
        "node_type": "ca",
        "fw": text(folder / "one" / "fw_ver"),
        "node_guid": "0200:00ff:7f00:0009",
        "sys_image_guid": "0200:00ff:7f00:0009",
    }
    first, *others = rdma_tool.links(folder)
    assert first == {
        "ifindex": 0,
        "ifname": "one",
        "port": 1,
        "state": "ACTIVE",
        "physical_state": "LINK_UP",
        "netdev": "lo",
        "netdev_index": 1,
    }
    assert [(row["ifname"], row["port"]) for row in others] == [("two", 1), ("two", 2)]


@pytest.mark.parametrize(
    ("words", "status", "lines"),
    [
        (["link", "show", "one"], 0, ["link one/1 state ACTIVE physical_state LINK_UP netdev lo "]),
        (["link"], 0, ["link one/1", "link two/1", "link two/2"]),
        (["link", "show", "two/2"], 0, ["link two/2 "]),
        (["l", "s", "two"], 0, ["link two/1 ", "link two/2 "]),
        (["dev", "show", "one"], 0, ["0: one: node_type ca fw "]),
        (["link", "show", "four"], 1, []),
        (["resource"], 1, []),
        ([], 1, []),
        (["link", "add", "one"], 1, []),
        (["link", "show", "one", "more"], 1, []),
    ],
)
def test_rdma_shows_links_and_devices_and_refuses_all_else(folder, monkeypatch, capsys, words, status, lines):
    monkeypatch.setenv(system_files.FOLDER, str(folder.parent.parent))
    assert rdma_tool.main(words) == status
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == len(lines)
    assert all(line.startswith(each) for line, each in zip(told.out.splitlines(), lines, strict=True))
    assert bool(told.err) == bool(status)


def test_rdma_prints_json(folder, monkeypatch, capsys):
    monkeypatch.setenv(system_files.FOLDER, str(folder.parent.parent))
    rdma_tool.main(["link", "show", "-j"])
    assert json.loads(capsys.readouterr().out) == rdma_tool.links(folder)
    rdma_tool.main(["-j", "-p", "dev"])
    pretty = capsys.readouterr().out
    assert json.loads(pretty) == rdma_tool.devices(folder)
    assert len(pretty.splitlines()) > len(rdma_tool.devices(folder))


def test_commands_read_below_the_folder_and_nothing_else(folder, tmp_path):
    write_commands(tmp_path / "commands", os.environ["PATH"])
    mine = tmp_path / "a file"
    mine.write_text("mine\n")
    environment = {
        system_files.FOLDER: str(folder.parent.parent),
        "PATH": f"{tmp_path / 'commands'}:{os.environ['PATH']}",
    }

    def output(*words):
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        ).stdout

    pkey = "/sys/class/infiniband/one/ports/1/pkeys/0"
    assert output("cat", pkey, str(mine), pkey) == "0xffff\nmine\n0xffff\n"
    assert output("ls", "/sys/class/infiniband") == "one\nthree\ntwo\n"
    assert json.loads(output("rdma", "link", "show", "-j")) == rdma_tool.links(folder)


def test_commands_that_are_not_there_are_not_made(tmp_path):
    write_commands(tmp_path / "commands", "")
    assert [each.name for each in (tmp_path / "commands").iterdir()] == ["rdma"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/sys/class/infiniband", "/f/class/infiniband"),
        ("/sys/class/infiniband/one/", "/f/class/infiniband/one/"),
        (b"/sys/class/infiniband/one", "/f/class/infiniband/one"),
        ("/sys/class/infiniband_mad", "/sys/class/infiniband_mad"),
        ("sys/class/infiniband", "sys/class/infiniband"),
        (3, 3),
        (None, None),
    ],
)
def test_only_paths_below_the_place_are_mapped(path, expected):
    assert system_files.mapped(path, "/f") == expected


PROGRAM = """
import glob, os, pathlib, shutil
from softhca import system_files
system_files.install()
system_files.install()
place = "/sys/class/infiniband"
class Reader:
    read = open
def ports(name):
    return sorted(os.listdir(path=f"{place}/{name}/ports"))
assert os.path.exists(place) and os.path.isdir(place + "/one") and not os.path.exists(place + "/four")
assert sorted(os.listdir(place)) == ["one", "three", "two"]
assert ports("two") == ["1", "2"]
found = sorted(glob.glob(place + "/*/ports/*"))
assert found == [place + each for each in ("/one/ports/1", "/two/ports/1", "/two/ports/2")]
assert open(place + "/one/node_type").read() == "1: CA\\n"
assert Reader().read(place + "/one/node_type").read() == "1: CA\\n"
assert pathlib.Path(place, "one", "node_type").read_text() == "1: CA\\n"
assert os.access(place + "/one", os.R_OK) and os.stat(place).st_ino == os.lstat(place).st_ino
descriptor = os.open(place + "/one/node_type", os.O_RDONLY)
assert os.read(descriptor, 100) == b"1: CA\\n" and os.stat(descriptor).st_size == 6
assert os.stat in os.supports_follow_symlinks and os.open in os.supports_dir_fd
assert os.listdir() and os.path.exists("/proc/self")
with open(os.devnull, "w") as stream:
    assert stream.write("x") == 1
print("done")
"""


def test_python_programs_read_below_the_folder(folder):
    told = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", PROGRAM],
        env={**os.environ, system_files.FOLDER: str(folder.parent.parent)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (told.stdout, told.stderr) == ("done\n", "")


def test_without_the_variable_nothing_is_redirected(monkeypatch):
    monkeypatch.delenv(system_files.FOLDER, raising=False)
    before = os.stat, builtins.open, io.open
    system_files.install()
    assert (os.stat, builtins.open, io.open) == before
    monkeypatch.setenv(system_files.FOLDER, "")
    system_files.install()
    assert (os.stat, builtins.open, io.open) == before


def test_programs_under_run_find_all_of_it():
    program = (
        "import subprocess, pyverbs, os\n"
        "print(subprocess.check_output(['rdma', 'link', 'show', '-j'], text=True).strip())\n"
        "print(os.listdir('/sys/class/infiniband'))"
    )
    command = [sys.executable, "-m", "softhca", "run", "--", sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    rows, names = told.stdout.splitlines()
    assert [(row["ifname"], row.get("netdev")) for row in json.loads(rows)] == [("softhca0", "lo")]
    assert names == "['softhca0']"


SHARING = """
import multiprocessing, os
from pyverbs.device import Context

def look(ready, go):
    with Context(name="softhca0") as context:
        found = os.listdir("/sys/class/infiniband/softhca0/device/net")
        os.write(1, f"{context.query_gid(1, 0)} {found}\\n".encode())  # in one piece
        ready.release()
        go.acquire()

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        of = multiprocessing.get_context(method)
        ready, go = of.Semaphore(0), of.Semaphore(0)
        processes = [of.Process(target=look, args=(ready, go)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            ready.acquire()
        for process in processes:
            go.release()
        for process in processes:
            process.join()
            assert process.exitcode == 0
"""


@pytest.mark.parametrize("adapter", ["embedded", "process"])
def test_processes_of_a_copy_share_its_device_wherever_the_adapter_is(tmp_path, adapter):
    program = tmp_path / "program.py"
    program.write_text(SHARING)
    command = [sys.executable, "-m", "softhca", "run", "--", sys.executable, str(program)]
    told = subprocess.run(
        command,
        env={**os.environ, "SOFTHCA_ADAPTER": adapter},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert len(lines) == 6
    assert len(set(lines)) == 1
    assert lines[0].endswith(" ['lo']")


def test_an_adapter_process_that_cannot_be_had_is_told_in_one_line():
    command = [sys.executable, "-m", "softhca", "run", "--", "true"]
    told = subprocess.run(
        command,
        env={**os.environ, "SOFTHCA_ADAPTER": "process", "SOFTHCA_DEVICES": "one=udp:192.0.2.1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert told.returncode == 1
    assert len(told.stderr.splitlines()) == 1
    assert "no adapter process for one: " in told.stderr
    assert "192.0.2.1" in told.stderr


def test_each_gid_has_the_interface_of_its_own_address():
    one, two = bytes(15) + b"\x01", bytes(15) + b"\x02"
    config = AdapterConfig(gids=(one, two), gid_entries=4)
    files = kernel_files._port_files("ports/1", config, (one, two), ("", "eth1"))
    told = {name.rpartition("/")[2]: text for name, text in files.items() if "/ndevs/" in name}
    assert told == {"1": "eth1", "3": "eth1"}
    assert [files[f"ports/1/gids/{index}"][-4:] for index in range(4)] == ["0001", "0002"] * 2
