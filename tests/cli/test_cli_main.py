"""The command line as a whole: statuses, one line of error, what is refused before anything is made."""

import re
import subprocess
import sys

import pytest

from machine_speed import limit_s
from softhca.cli import main as main_module
from softhca.cli.commands import COMMANDS
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.figures import compiled
from softhca.cli.main import build_parser, describe, main, status_of
from softhca.cli.perf_plan import SIGNAL_EVERY, TESTS, plan_of
from softhca.runtime.specification import DeviceSpecificationError
from softhca.verbs.pyverbs_error import PyverbsUserError


def plan(*words):
    return plan_of(build_parser("perf").parse_args(["perf", *words]))


@pytest.mark.parametrize("words", [
    [], ["nonsense"], ["perf"], ["perf", "write-speed"], ["perf", "write-bw", "--size", "0"],
    ["perf", "write-bw", "--iters", "1", "--seconds", "1"], ["pingpong", "--service", "xrc"],
    ["pingpong", "-m", "1500"], ["run", "-n", "0", "--", "true"], ["run", "--link", "tcp", "--", "true"],
    ["ping", "--port", "65536"],
])  # fmt: skip
def test_wrong_arguments_are_status_2_before_anything_happens(words, capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(words)
    assert exit_info.value.code == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("words", "word"), [
    (["perf", "read-bw", "--qp-type", "UC"], "RC only"),
    (["perf", "write-bw", "--qp-type", "UD"], "RC, UC only"),
    (["perf", "atomic-lat", "--qp-type", "UD"], "RC only"),
    (["perf", "atomic-bw", "--size", "16"], "8 bytes"),
    (["perf", "write-lat", "--qps", "2"], "one queue pair"),
    (["perf", "write-bw", "--link", "shm", "--qp-type", "UC"], "RC queue pairs"),
    (["perf", "send-bw", "--link", "shm", "--qp-type", "UD"], "RC queue pairs"),
    (["perf", "mailbox-bw", "--link", "shm"], "RC queue pairs"),
    (["perf", "write-bw", "--link", "shm", "--faults", "loss=1%"], "go with --link udp"),
    (["pingpong", "-q", "2"], "-q goes with --srq"),
    (["pingpong", "--srq", "--service", "ud"], "--service rc"),
    (["pingpong", "--srq", "-e"], "polls"),
    (["pingpong", "--srq", "-q", "20", "-r", "19"], "as many receives"),
    (["perf", "send-lat", "-b"], "not with send-lat"),
    (["perf", "mailbox-bw", "--reversed"], "not with mailbox-bw"),
    (["perf", "write-bw", "-b", "--reversed"], "exclude each other"),
    (["perf", "atomic-bw", "-a"], "one message size"),
    (["perf", "mailbox-bw", "-a"], "one message size"),
    (["perf", "send-bw", "-a", "-s", "64"], "exclude each other"),
    (["perf", "send-bw", "-a", "--seconds", "1"], "not with --seconds"),
    (["run"], "which program"),
    (["run", "--"], "which program"),
    (["run", "--link", "shm", "--capture", "x.pcapng", "--", "true"], "go with --link udp"),
    (["run", "--link", "shm", "--faults", "loss=1%", "--", "true"], "go with --link udp"),
    (["run", "--capture", "/nowhere/x.pcapng", "--", "true"], "no such folder"),
])  # fmt: skip
def test_what_does_not_go_together_is_one_line_and_status_2(words, word, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"softhca {words[0]}: ")
    assert word in captured.err


class Failing:
    def __init__(self, error):
        self.error = error

    def run(self, args):
        raise self.error


@pytest.fixture
def failing(monkeypatch):
    """Makes `devinfo` raise an error."""
    real = main_module.importlib.import_module

    def arrange(error):
        def import_module(name):
            return Failing(error) if arrange.armed and name.endswith("devinfo") else real(name)

        monkeypatch.setattr(main_module.importlib, "import_module", import_module)
        parser = build_parser("devinfo")
        monkeypatch.setattr(main_module, "build_parser", lambda *commands, others: parser)
        arrange.armed = True

    arrange.armed = False
    return arrange


@pytest.mark.parametrize(("error", "status", "line"), [
    (CommandError("it broke"), 1, "softhca devinfo: it broke\n"),
    (UsageError("two\nlines"), 2, "softhca devinfo: two lines\n"),
    (ValueError("odd"), 1, "softhca devinfo: odd (ValueError)\n"),
    (KeyError(), 1, "softhca devinfo: failed (KeyError)\n"),
])  # fmt: skip
def test_every_error_is_one_line_without_traceback(failing, error, status, line, capsys):
    failing(error)
    assert main(["devinfo"]) == status
    assert capsys.readouterr() == ("", line)


def test_debug_shows_the_error_itself(failing):
    failing(ValueError("odd"))
    with pytest.raises(ValueError, match="odd"):
        main(["--debug", "devinfo"])


def test_interrupt_is_status_130_without_a_word(failing, capsys):
    failing(KeyboardInterrupt())
    assert main(["devinfo"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("error", "status"), [
    (DeviceSpecificationError("x"), 2), (PyverbsUserError("x"), 1), (UsageError("x"), 2),
    (CommandError("x"), 1),
])  # fmt: skip
def test_foreseen_errors_speak_for_themselves(error, status):
    assert (describe(error), status_of(error)) == ("x", status)


def test_module_is_the_command():
    process = subprocess.run(
        [sys.executable, "-m", "softhca", "--help"], capture_output=True, text=True, timeout=limit_s(60)
    )
    assert process.returncode == 0
    for command in ("devinfo", "run", "perf", "ping", "pingpong", "capture"):
        assert command in process.stdout


def test_plans_have_perftests_defaults():
    assert TESTS == (
        "write-bw",
        "write-lat",
        "read-bw",
        "read-lat",
        "send-bw",
        "send-lat",
        "atomic-bw",
        "atomic-lat",
        "mailbox-bw",
        "mailbox-lat",
    )
    chosen = {test: (plan(test).size_bytes, plan(test).iterations) for test in TESTS}
    assert chosen.pop("write-bw") == (65536, 5000)
    assert {chosen[test] for test in ("read-bw", "send-bw")} == {(65536, 1000)}
    assert {chosen[test] for test in ("write-lat", "read-lat", "send-lat")} == {(2, 1000)}
    assert {chosen[test] for test in ("atomic-bw", "atomic-lat")} == {(8, 1000)}
    assert {chosen[test] for test in ("mailbox-bw", "mailbox-lat")} == {(64, 1000)}
    assert (plan("write-bw").depth, plan("write-bw").batch) == (128, 16)
    assert (plan("write-lat").depth, plan("write-lat").batch) == (SIGNAL_EVERY, 1)


def test_plan_takes_size_service_and_amount():
    chosen = plan("send-bw", "--qp-type", "ud", "--size", "512", "--seconds", "0.5", "--qps", "3")
    assert (chosen.service, chosen.size_bytes, chosen.iterations, chosen.seconds) == ("ud", 512, 0, 0.5)
    assert chosen.queue_pairs == 3
    assert plan("send-bw", "--qp-type", "UD").size_bytes == 1024
    assert plan("read-bw", "-n", "7").iterations == 7


def test_a_command_is_imported_when_it_is_asked_for():
    """`--help` needs the names and lines of the commands, and nothing that runs one."""
    program = (
        "import sys\n"
        "from softhca.cli.main import build_parser\n"
        "build_parser(*sys.argv[1:]).format_help()\n"
        "print(*sorted(name for name in sys.modules if name.startswith('softhca')))\n"
    )
    command = [sys.executable, "-c", program]
    alone = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    own = ["commands", "errors", "main", "remedies"]
    assert alone == ["softhca", "softhca.cli", *(f"softhca.cli.{name}" for name in own)]
    with_abi = subprocess.run([*command, "abi"], capture_output=True, text=True, check=True).stdout.split()
    assert "softhca.cli.abi" in with_abi
    assert "softhca.cli.perf" not in with_abi


@pytest.mark.parametrize(
    ("name", "spared"),
    [
        ("perf", ["adapter.config", "mailbox.box", "verbs.device"]),
        ("run", ["adapter.config", "cli.kernel_files"]),
        ("simulate", ["simulation.runner", "verbs.device"]),
        ("campaign", ["simulation.runner", "simulation.cluster", "verbs.device"]),
        ("fabric", ["simulation.runner", "fabric.mad_plane", "runtime.specification", "wire.packet"]),
    ],
)
def test_the_parser_of_a_command_needs_nothing_that_only_running_it_needs(name, spared):
    """`softhca perf --help` is there before the verbs would be."""
    program = (
        "import sys\n"
        "from softhca.cli.main import build_parser\n"
        "build_parser(sys.argv[1]).format_help()\n"
        "print(*sys.modules)\n"
    )
    command = [sys.executable, "-c", program, name]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert f"softhca.cli.{name}" in imported
    assert {f"softhca.{module}" for module in spared} & set(imported) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_its_module_and_its_help(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: softhca {name} ")


def test_run_offers_only_what_it_does(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    offered = capsys.readouterr().out
    assert "udp|shm|fabric:TOPOLOGY" in offered


@pytest.mark.parametrize("words", [["devinfo", "--help"], ["devinfo", "--nonsense"]])
def test_a_command_s_own_words_need_the_parser_of_no_other(words, monkeypatch):
    """To make the parsers of all commands takes longer than to make one."""
    made = []
    real = main_module.build_parser
    parser = lambda *names, others: made.append(others) or real(*names)  # noqa: E731
    monkeypatch.setattr(main_module, "build_parser", parser)
    for line in (words, words[::-1]):
        with pytest.raises(SystemExit):
            main(line)
    assert made == [False, True]
    for others, known in ((False, ["devinfo"]), (True, sorted(COMMANDS))):
        assert sorted(real("devinfo", others=others)._subparsers._group_actions[0].choices) == known


def test_version_tells_whether_modules_are_compiled(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    mode = "compiled" if compiled() else "interpreted"
    assert re.fullmatch(rf"softhca (\d+\.\d+\.\d+\S*|\(not installed\)), {mode}\n", capsys.readouterr().out)
