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

from softhca.cli import launch
from softhca.cli.errors import CommandError
from softhca.cli.launch import command_line, environment, free_loopback_addresses, write_alias
from softhca.cli.run import exit_status

TIMEOUT_S = 60


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
        {"HOME": "/h", "SOFTHCA_CAPTURE": "old"}, 1, ["127.0.0.2", "127.0.0.3"], tmp_path, None
    )
    assert variables["SOFTHCA_DEVICES"] == "softhca0=udp:127.0.0.3"
    assert variables["SOFTHCA_RANK"] == "1"
    assert variables["SOFTHCA_PEERS"] == "127.0.0.2,127.0.0.3"
    assert variables["HOME"] == "/h"
    assert "SOFTHCA_CAPTURE" not in variables


@pytest.mark.parametrize(
    ("same_host", "option"), [(None, ""), (True, "?same_host=1"), (False, "?same_host=0")]
)
def test_environment_says_whether_copies_share_memory_only_where_that_is_asked(tmp_path, same_host, option):
    variables = environment({}, 1, ["127.0.0.2", "127.0.0.3"], tmp_path, None, same_host)
    assert variables["SOFTHCA_DEVICES"] == f"softhca0=udp:127.0.0.3{option}"


def test_environment_names_the_capture_folder(tmp_path):
    assert environment({}, 0, ["127.0.0.2"], tmp_path, tmp_path)["SOFTHCA_CAPTURE"] == str(tmp_path)


def test_environment_keeps_the_users_paths_behind_ours(tmp_path):
    variables = environment({"PYTHONPATH": "/mine:/too", "PATH": "/bin"}, 0, ["127.0.0.2"], tmp_path, None)
    places = variables["PYTHONPATH"].split(":")
    assert places[0] == str(tmp_path)
    assert places[1] == str(Path(launch.softhca.__file__).resolve().parent.parent)
    assert places[-2:] == ["/mine", "/too"]
    assert variables["PATH"].split(":") == [str(Path(sys.executable).parent), "/bin"]


def test_script_that_is_not_executable_goes_to_this_interpreter(tmp_path):
    script = tmp_path / "prog.py"
    script.write_text("")
    assert command_line([str(script), "x"]) == [sys.executable, str(script), "x"]
    script.chmod(0o755)
    assert command_line([str(script), "x"]) == [str(script), "x"]
    assert command_line(["true"]) == ["true"]


def test_alias_is_a_package_named_pyverbs(tmp_path):
    write_alias(tmp_path)
    compile((tmp_path / "pyverbs" / "__init__.py").read_text(), "pyverbs", "exec")


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
    assert process.stderr == "softhca run: cannot start /nowhere/program: No such file or directory\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_to_run_ends_every_copy(tmp_path, number, status):
    code = f"import os, time; open({str(tmp_path)!r} + '/' + str(os.getpid()), 'w').close(); time.sleep(600)"
    command = [sys.executable, "-m", "softhca", "run", *python(code, "-n", "2")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(os.listdir(tmp_path)) < 2 and time.monotonic() < deadline_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == status
    assert "Traceback" not in said
    names = os.listdir(tmp_path)
    assert len(names) == 2
    for name in names:
        with pytest.raises(ProcessLookupError):
            os.kill(int(name), 0)
