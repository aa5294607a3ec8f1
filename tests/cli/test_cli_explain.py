"""`softhca run --explain`: which verbs a program calls itself, what it is refused, what it is told."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from machine_speed import limit_s
from softhca import verbs_usage
from softhca.cli.explain import explain_variables, print_accounts
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs_usage import Account

TIMEOUT_S = limit_s(60)

PROGRAM = """
import multiprocessing
import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.dmabuf import DmaBuf
from pyverbs.mr import MR, DMMR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError

def child():
    for _ in range(3):
        get_device_list()

def refused(call, *arguments):
    try:
        call(*arguments)
    except PyverbsError:
        return
    raise SystemExit("not refused")

if __name__ == "__main__":
    with Context(name="softhca0") as context, PD(context) as pd, CQ(context, 10) as cq:
        assert context.query_device_ex().tm_caps.max_sge == 0
        assert context.query_device_ex().orig_attr.max_qp > 0
        cq.poll(1)
        cq.poll(1)
        refused(MR, pd, 100, e.IBV_ACCESS_REMOTE_WRITE)
        refused(DmaBuf, 100)
        refused(DmaBuf, 100)
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=child)
        process.start()
        process.join()
"""


def explained(*words, program):
    command = [sys.executable, "-m", "softhca", "run", *words, "--explain", "--", sys.executable, program]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def rows_of(text):
    """The rows of all tables, without their frames."""
    lines = [line.strip("│").split("│") for line in text.splitlines() if "│" in line]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [row for row in cells if row[0]]


def test_tables_tell_what_a_program_called_and_was_told(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    told = explained(program=program)
    assert (told.returncode, told.stdout) == (0, "")
    assert "Verbs that 3 processes called" in told.stderr
    rows = rows_of(told.stderr)
    calls = {row[0]: int(row[1]) for row in rows if len(row) == 2}
    assert calls == {
        "CQ()": 1,
        "CQ.close()": 1,
        "CQ.poll()": 2,
        "Context()": 1,
        "Context.close()": 1,
        "Context.query_device_ex()": 2,
        "DmaBuf()": 2,
        "MR()": 1,
        "PD()": 1,
        "PD.close()": 1,
        "get_device_list()": 6,
    }
    assert ["TMCaps.max_sge", "0", "1"] in rows
    told_of = {row[0]: row[1:] for row in rows if len(row) == 4}
    assert told_of.keys() == {"DmaBuf()", "MR()"}
    assert told_of["DmaBuf()"][::2] == ["EOPNOTSUPP", "2"]
    assert told_of["MR()"][0] == "EINVAL"
    assert "need LOCAL_WRITE" in told_of["MR()"][1]
    assert told.stderr.index("Not supported") < told.stderr.index("Refused, or failed")


def test_copies_are_counted_together_and_one_that_is_killed_is_left_out(tmp_path, monkeypatch):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal\n"
        "from pyverbs.device import get_device_list\n"
        "get_device_list()\n"
        f"if 'kill' in os.environ: os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    told = explained("-n", "2", program=program)
    assert told.returncode == 0
    assert rows_of(told.stderr) == [["get_device_list()", "2"]]
    monkeypatch.setenv("kill", "1")
    told = explained(program=program)
    assert told.returncode == 128 + signal.SIGKILL
    assert told.stderr.endswith("softhca run: no process that imported pyverbs came to its end\n")


def test_without_the_option_nothing_is_said(tmp_path, capsys):
    assert explain_variables(False, tmp_path / "accounts") == {}
    print_accounts(tmp_path / "accounts")
    assert capsys.readouterr() == ("", "")
    assert explain_variables(True, tmp_path / "accounts") == {verbs_usage.FOLDER: str(tmp_path / "accounts")}


class Verb:
    """Two methods, one of which calls the other."""

    def outer(self):
        return self.inner()

    def inner(self):
        return 7

    def fails(self, error):
        raise error


@pytest.fixture
def account(tmp_path):
    return Account(str(tmp_path))


@pytest.fixture
def verb(account):
    kind = type("Verb", (), {name: account.wrapped(getattr(Verb, name), f".{name}()")
                             for name in ("outer", "inner", "fails")})  # fmt: skip
    return kind()


def test_what_a_verb_calls_is_not_counted(account, verb):
    assert (verb.outer(), verb.outer(), verb.inner()) == (7, 7, 7)
    assert account.calls == {"Verb.outer()": 2, "Verb.inner()": 1}


def test_errors_are_kept_with_errno_and_text(account, verb):
    for error in (PyverbsRDMAError("one", errno.EINVAL), PyverbsUserError("two")):
        for _ in range(2):
            with pytest.raises(type(error)):
                verb.fails(error)
    with pytest.raises(ZeroDivisionError):
        verb.fails(ZeroDivisionError())
    assert verb.inner() == 7  # an error leaves the verb
    assert account.calls["Verb.inner()"] == 1
    assert account.errors == {
        ("Verb.fails()", errno.EINVAL, str(PyverbsRDMAError("one", errno.EINVAL))): 2,
        ("Verb.fails()", -1, "two"): 2,
    }


def test_different_errors_are_bounded(account, verb):
    for number in range(verbs_usage.MAX_TEXTS + 5):
        with pytest.raises(PyverbsUserError):
            verb.fails(PyverbsUserError(str(number)))
    assert len(account.errors) == verbs_usage.MAX_TEXTS + 1
    assert account.errors["Verb.fails()", -1, "…"] == 5


def test_threads_are_inside_verbs_each_for_itself(account, verb):
    entered, leave = threading.Event(), threading.Event()

    def waits():
        entered.set()
        assert leave.wait(TIMEOUT_S)

    thread = threading.Thread(target=account.wrapped(waits, "()", "waits"))
    thread.start()
    assert entered.wait(TIMEOUT_S)
    verb.outer()
    leave.set()
    thread.join()
    assert account.calls == {"waits()": 1, "Verb.outer()": 1}


def test_capabilities_that_are_not_0_are_not_told(account):
    account.read("Caps.none", 0)
    account.read("Caps.some", 3)
    account.read("Caps.record", None)
    assert account.zeros == {"Caps.none": 1}


def test_an_account_is_json_and_a_folder_that_is_gone_is_no_error(account, verb, tmp_path):
    verb.outer()
    account.write()
    told = json.loads((tmp_path / f"{os.getpid()}.json").read_text())
    assert told == {"calls": {"Verb.outer()": 1}, "errors": [], "zeros": {}}
    account.folder = str(tmp_path / "gone")
    account.write()


def test_what_several_processes_were_told_is_added(tmp_path, capsys):
    refused = ["MR", errno.EINVAL, "no", 3]
    for name, calls in (("1", {"MR": 5}), ("2", {"MR": 6, "CQ": 1})):
        told = {"calls": calls, "zeros": {"tm_caps": 2}, "errors": [refused]}
        (tmp_path / name).write_text(json.dumps(told))
    print_accounts(tmp_path)
    lines = [line.replace("│", " ").split() for line in capsys.readouterr().err.splitlines()]
    assert ["MR", "11"] in lines
    assert ["MR", "EINVAL", "no", "6"] in lines
    assert ["tm_caps", "0", "4"] in lines
