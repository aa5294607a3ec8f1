"""`softhca run`: what the copies get, and how they end together."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from machine_speed import limit_s
from softhca.cli import keeper, launch
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.launch import (
    command_line,
    devices_of_copies,
    environment,
    free_loopback_addresses,
    prepare,
)
from softhca.cli.run import exit_status

TIMEOUT_S = limit_s(60)


def softhca_run(*words, **options):
    command = [sys.executable, "-m", "softhca", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, **options)


def python(code, *words):
    return [*words, "--", sys.executable, "-c", code]


def test_addresses_are_loopback_and_differ():
    addresses = free_loopback_addresses(3)
    assert len(set(addresses)) == 3
    assert all(address.startswith("127.") and not address.startswith("127.0.") for address in addresses)


def test_launchers_that_start_together_choose_apart():
    one, other = (set(free_loopback_addresses(63, launcher=process)) for process in (4711, 4712))
    assert not one & other


def test_address_in_use_is_passed_over():
    taken = free_loopback_addresses(1)[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind((taken, 4791))
        assert taken not in free_loopback_addresses(2)


def test_too_many_addresses_are_refused():
    with pytest.raises(CommandError, match="free"):
        free_loopback_addresses(64)


def test_environment_names_device_rank_and_peers(tmp_path):
    variables = environment(
        {"HOME": "/h", "SOFTHCA_CAPTURE": "old"}, 1, "a=udp:127.0.0.3", ["127.0.0.2", "127.0.0.3"], tmp_path,
        None,
    )  # fmt: skip
    assert variables["SOFTHCA_DEVICES"] == "a=udp:127.0.0.3"
    assert variables["SOFTHCA_RANK"] == "1"
    assert variables["SOFTHCA_PEERS"] == "127.0.0.2,127.0.0.3"
    assert variables["HOME"] == "/h"
    assert "SOFTHCA_CAPTURE" not in variables


SAME_HOST = [(None, ""), (True, "?same_host=1"), (False, "?same_host=0")]


@pytest.mark.parametrize(("same_host", "option"), SAME_HOST)
@pytest.mark.parametrize("unset", ["", " "])
def test_copies_have_a_device_each_and_share_memory_as_that_is_asked(same_host, option, unset):
    devices, peers = devices_of_copies(unset, 2, same_host)
    assert devices == [f"softhca0=udp:{peer}{option}" for peer in peers]
    assert len(set(peers)) == 2


def test_the_users_devices_are_kept():
    text = "first=udp:127.0.0.9?mtu=1024,second=udp:[::1],third=unix:@served"
    assert devices_of_copies(text, 1) == ([text], ["127.0.0.9"])
    assert devices_of_copies("a=unix:@served", 3) == (["a=unix:@served"] * 3, [])


@pytest.mark.parametrize(("same_host", "option"), SAME_HOST)
def test_a_device_of_the_users_without_an_address_has_another_in_each_copy(same_host, option):
    devices, peers = devices_of_copies("one=udp:*?mtu=512,two=udp:*,three=unix:@served", 2, same_host)
    words = [device.split(",") for device in devices]
    joined = option.replace("?", "&")
    assert [first for first, _, _ in words] == [f"one=udp:{peer}?mtu=512{joined}" for peer in peers]
    assert all(second.endswith(option) for _, second, _ in words)
    assert [third for _, _, third in words] == ["three=unix:@served"] * 2
    places = {word.split(":")[1].split("?")[0] for copy in words for word in copy[:2]}
    assert len(places) == 4


def test_what_the_user_says_of_shared_memory_is_kept_unless_the_link_is_named():
    assert "same_host=0" in devices_of_copies("a=udp:*?same_host=0", 1)[0][0]
    assert "same_host=1" in devices_of_copies("a=udp:*?same_host=0", 1, True)[0][0]


def test_an_interface_of_the_users_is_told_to_the_copies_by_its_address():
    assert devices_of_copies("a=udp:lo", 1) == (["a=udp:lo"], ["127.0.0.1"])


@pytest.mark.parametrize(
    ("text", "copies", "word"),
    [
        ("a=udp:127.0.0.9", 2, "127.0.0.9, which one copy alone can have, not 2"),
        ("a=udp:*,b=udp:lo", 3, "b is on lo"),
        ("a=udp", 1, "no kind of link"),
        ("a=udp:nowhere0", 1, "no interface 'nowhere0'"),
    ],
)
def test_devices_of_the_users_that_copies_can_not_have_are_told_in_one_line(text, copies, word):
    with pytest.raises(UsageError, match=word):
        devices_of_copies(text, copies)
    process = softhca_run(*python("pass", "-n", str(copies)), env={**os.environ, "SOFTHCA_DEVICES": text})
    assert (process.returncode, process.stdout) == (2, "")
    assert word in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_copies_see_what_the_user_has_set():
    code = "import os; print(os.environ['SOFTHCA_DEVICES'], os.environ['SOFTHCA_PEERS'])"
    process = softhca_run(*python(code), env={**os.environ, "SOFTHCA_DEVICES": "mine=udp:127.0.0.9?mtu=256"})
    assert (process.returncode, process.stdout) == (0, "mine=udp:127.0.0.9?mtu=256 127.0.0.9\n")


def test_environment_names_the_capture_folder(tmp_path):
    assert environment({}, 0, "", ["127.0.0.2"], tmp_path, tmp_path)["SOFTHCA_CAPTURE"] == str(tmp_path)


def test_environment_keeps_the_users_paths_behind_ours(tmp_path):
    base = {"PYTHONPATH": "/mine:/too", "PATH": "/bin"}
    variables = environment(base, 0, "", ["127.0.0.2"], tmp_path, None)
    places = variables["PYTHONPATH"].split(":")
    assert places[0] == str(tmp_path / "alias")
    assert places[1] == str(Path(launch.softhca.__file__).resolve().parent.parent)
    assert places[-2:] == ["/mine", "/too"]
    own = [str(tmp_path / "commands"), str(Path(sys.executable).parent)]
    assert variables["PATH"].split(":") == [*own, "/bin"]


def test_script_that_is_not_executable_goes_to_this_interpreter(tmp_path):
    script = tmp_path / "prog.py"
    script.write_text("")
    assert command_line([str(script), "x"]) == [sys.executable, str(script), "x"]
    script.chmod(0o755)
    assert command_line([str(script), "x"]) == [str(script), "x"]
    assert command_line(["true"]) == ["true"]


def test_alias_is_a_package_named_pyverbs(tmp_path):
    prepare(tmp_path, [], "")
    compile((tmp_path / "alias" / "pyverbs" / "__init__.py").read_text(), "pyverbs", "exec")


@pytest.mark.parametrize(("returncode", "status"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_exit_status_of_a_killed_copy_is_the_shells(returncode, status):
    assert exit_status(returncode) == status


def test_every_copy_gets_its_rank_its_device_and_all_peers(tmp_path):
    code = (
        "import json, os\n"
        f"with open({str(tmp_path)!r} + '/' + os.environ['SOFTHCA_RANK'], 'w') as stream:\n"
        "    json.dump(dict(os.environ), stream)\n"
    )
    process = softhca_run(*python(code, "-n", "3"))
    assert (process.returncode, process.stderr) == (0, "")
    copies = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(3)]
    peers = copies[0]["SOFTHCA_PEERS"].split(",")
    assert len(set(peers)) == 3
    assert [copy["SOFTHCA_DEVICES"] for copy in copies] == [f"softhca0=udp:{peer}" for peer in peers]
    assert [copy["SOFTHCA_RANK"] for copy in copies] == ["0", "1", "2"]
    assert {copy["SOFTHCA_PEERS"] for copy in copies} == {",".join(peers)}


@pytest.mark.parametrize(("link", "option"), [("udp", "0"), ("shm", "1")])
def test_the_link_that_is_named_is_what_copies_have(link, option):
    process = softhca_run("--link", link, *python("import os; print(os.environ['SOFTHCA_DEVICES'])"))
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.endswith(f"?same_host={option}\n")


def test_arguments_after_the_dashes_are_the_programs():
    process = softhca_run("--", sys.executable, "-c", "import sys; print(sys.argv[1:])", "-n", "--link", "x")
    assert process.stdout == "['-n', '--link', 'x']\n"


def test_status_is_the_first_failure_and_the_others_are_ended(tmp_path):
    code = (
        "import os, sys, time\n"
        "if os.environ['SOFTHCA_RANK'] == '1':\n"
        f"    while len(os.listdir({str(tmp_path)!r})) < 2: time.sleep(0.01)\n"
        "    sys.exit(7)\n"
        f"open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w').close()\n"
        "time.sleep(600)\n"
    )
    process = softhca_run(*python(code, "-n", "3"))
    assert process.returncode == 7
    others = os.listdir(tmp_path)
    assert len(others) == 2
    for name in others:
        with pytest.raises(ProcessLookupError):
            os.kill(int(name), 0)


def test_copy_that_succeeds_ends_nobody():
    code = "import os, sys; sys.stdin.read() if os.environ['SOFTHCA_RANK'] == '1' else None; sys.exit(0)"
    assert softhca_run(*python(code, "-n", "2"), stdin=subprocess.DEVNULL).returncode == 0


def test_killed_copy_gives_the_shells_status():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert softhca_run(*python(code)).returncode == 137


def test_program_that_is_not_there_is_one_line_and_status_1():
    process = softhca_run("--", "/nowhere/program")
    assert process.returncode == 1
    said = "softhca run: cannot start /nowhere/program: No such file or directory; "
    assert process.stderr.startswith(said)
    assert process.stderr.count("\n") == 1


def count_marked(mark):
    lives = keeper.marked(mark)
    for life in lives:
        os.close(life)
    return len(lives)


def mark_of(folder):
    return folder.name.removeprefix("softhca-run-")


@contextlib.contextmanager
def running(tmp_path, code, copies=2):
    """`softhca run` of copies that note their numbers; it, and the folders of its temporary directory."""
    notes, temporary = tmp_path / "notes", tmp_path / "temporary"
    notes.mkdir()
    temporary.mkdir()
    code = f"import os, time\nopen({str(notes)!r} + '/' + str(os.getpid()), 'w').close()\n{code}"
    command = [sys.executable, "-m", "softhca", "run", *python(code, "-n", str(copies))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, env={**os.environ, "TMPDIR": str(temporary)})
    try:
        wait_for(lambda: len(os.listdir(notes)) >= copies or process.poll() is not None)
        yield process, notes, temporary
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
        wait_for(lambda: not any(map(is_alive, os.listdir(notes))))


def wait_for(condition):
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_alive(name):
    try:
        os.kill(int(name), 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{name}/stat") as stream:
        return stream.read().rpartition(")")[2].split()[0] != "Z"  # whoever should reap it may not


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_signal_to_run_ends_every_copy(tmp_path, number, status):
    with running(tmp_path, "time.sleep(600)") as (process, notes, temporary):
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == status
        assert "Traceback" not in said
        assert len(os.listdir(notes)) == 2
        assert not any(map(is_alive, os.listdir(notes)))
        assert os.listdir(temporary) == []


IGNORES = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
HAS_CHILD = "import subprocess\nsubprocess.Popen(['sleep', '600'])\n"


@pytest.mark.parametrize("before", ["", HAS_CHILD, IGNORES])
def test_nothing_is_left_of_a_run_that_is_killed(tmp_path, before):
    with running(tmp_path, before + "time.sleep(600)") as (process, notes, temporary):
        (folder,) = temporary.iterdir()
        mark = mark_of(folder)
        wait_for(lambda: count_marked(mark) >= (4 if before == HAS_CHILD else 2))
        process.kill()
        wait_for(lambda: not count_marked(mark))
        wait_for(lambda: not any(map(is_alive, os.listdir(notes))))  # one that ends loses its mark first
        wait_for(lambda: os.listdir(temporary) == [])


def test_a_run_that_ends_leaves_alone_what_its_copies_have_started(tmp_path):
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '600'], stderr=subprocess.DEVNULL)\n"
        "print(child.pid, file=sys.stderr)"
    )
    with running(tmp_path, code, 1) as (process, _, temporary):
        child = process.stderr.readline().strip()
        assert process.wait(TIMEOUT_S) == 0
        assert os.listdir(temporary) == []
        assert is_alive(child)
        os.kill(int(child), signal.SIGKILL)


def test_a_hangup_that_is_ignored_stays_so(tmp_path):
    code = "import os, signal; os.kill(os.getppid(), signal.SIGHUP)"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is inherited, as under nohup
    try:
        process = softhca_run(*python(code))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (process.returncode, process.stderr) == (0, "")
