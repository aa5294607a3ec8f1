"""``softhca adapter``: an adapter process is started, shown with who uses it, and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from machine_speed import limit_s
from softhca.cli.main import main
from softhca.runtime import adapter_service, listening_name
from softhca.runtime.adapter_process import connect_to
from softhca.runtime.specification import parse_one

ADDRESS = "127.0.0.131"


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SOFTHCA_DEVICES", raising=False)
    running = adapter_service.running
    before = {each.pid for each in running()}

    def made_here() -> list[adapter_service.AdapterService]:
        """Others of this user, whoever started them, are neither looked at nor stopped."""
        return [each for each in running() if each.pid not in before and "tested" in each.device]

    monkeypatch.setattr(adapter_service, "running", made_here)
    yield
    for each in made_here():
        adapter_service.stop(each, kill=True)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["adapter", *words])
    found = capsys.readouterr()
    return status, found.out, found.err


def shown(capsys: pytest.CaptureFixture[str], name: str) -> list[dict[str, object]]:
    status, out, _ = said(capsys, "status", "--json")
    assert status == 0
    return [each for each in json.loads(out) if each["name"] == name]


def test_a_service_is_started_shown_used_and_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    device = f"tested0=udp:{ADDRESS}"
    name = adapter_service.name_for(parse_one(device))
    status, out, err = said(capsys, "start", device)
    assert (status, err) == (0, "")
    found = re.fullmatch(
        rf"tested0: process (\d+) serves {re.escape(ADDRESS)} at {re.escape(name)}\n"
        rf"SOFTHCA_DEVICES=tested0=unix:{re.escape(name)} softhca run -- PROGRAM\n",
        out,
    )
    assert found
    pid = int(found[1])
    (row,) = shown(capsys, name)
    assert (row["device"], row["pid"], row["programs"], row["service"]) == (device, pid, 0, True)
    assert row["memory_bytes"] > 1 << 20  # type: ignore[operator]
    assert 0 <= row["up_s"] < limit_s(120)  # type: ignore[operator]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for devices in (f"tested0=unix:{name}", device):  # by its name, or by the address that it has
        done = subprocess.run(
            [sys.executable, "-P", "-m", "softhca", "devinfo", "--json"],
            env={**environment, "SOFTHCA_DEVICES": devices, "SOFTHCA_ADAPTER": "process"},
            capture_output=True, text=True, timeout=limit_s(60), check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert ADDRESS in done.stdout
    status, out, err = said(capsys, "start", device)
    assert (status, out) == (1, "")
    assert f"something listens at {name} already" in err
    status, out, _ = said(capsys, "status")
    assert status == 0
    assert "until it is stopped" in out
    assert said(capsys, "stop", "tested0")[:2] == (0, f"tested0: process {pid} has ended\n")
    assert shown(capsys, name) == []
    assert os.waitpid(pid, 0) == (pid, 0)


def test_one_that_serves_a_program_is_stopped_by_force_alone(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"@softhca-tested-{os.getpid()}"
    assert said(capsys, "start", "tested1=udp:*", "--at", name)[0] == 0
    (row,) = shown(capsys, name)
    with connect_to(name, "tested1") as program:
        assert shown(capsys, name)[0]["programs"] == 1
        status, out, err = said(capsys, "stop", name)
        assert (status, out) == (1, "")
        assert "serves 1 programs" in err
        assert "--force" in err
        assert said(capsys, "stop", "--all") == (0, "no adapter process to stop\n", "")
        assert shown(capsys, name)
        assert said(capsys, "stop", str(row["pid"]), "--force")[0] == 0
        program.settimeout(limit_s(30))
        with contextlib.suppress(ConnectionResetError):  # where it had not read all that it was told
            assert program.recv(1) == b""
    assert shown(capsys, name) == []


def test_what_cannot_be_served_or_named_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((ADDRESS, 4791))
        status, out, err = said(capsys, "start", f"tested2=udp:{ADDRESS}")
    assert (status, out) == (1, "")
    assert ADDRESS in err
    assert not listening_name.is_taken(adapter_service.name_for(parse_one(f"tested2=udp:{ADDRESS}")))
    for words, told in (
        (("start", "nothing"), "is not NAME=KIND:PLACE"),
        (("start", "tested3=unix:@somewhere"), "is an adapter process already"),
        (("start", "tested3=udp:*", "--at", "somewhere"), "a name has an @"),
        (("stop",), "name an adapter process"),
        (("stop", "tested3", "--all"), "name an adapter process"),
    ):
        status, out, err = said(capsys, *words)
        assert (status, out) == (2, "")
        assert told in err
    status, out, err = said(capsys, "stop", "tested3")
    assert (status, out) == (1, "")
    assert "no adapter process tested3" in err


def test_in_the_foreground_it_serves_until_sigterm() -> None:
    name = f"@softhca-tested-foreground-{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = ["adapter", "start", "tested4=udp:*", "--at", name, "--foreground"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "softhca", *words], env=environment, stdout=subprocess.PIPE, text=True
    ) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline().startswith("ready 127.")
            (found,) = [each for each in adapter_service.running() if each.name == name]
            assert (found.pid, found.service, found.device_name) == (service.pid, True, "tested4")
        finally:
            service.send_signal(signal.SIGTERM)
        assert service.wait(limit_s(60)) == 0


def test_a_process_number_that_is_another_one_s_by_now_is_left_alone() -> None:
    gone = adapter_service.AdapterService("tested5=udp:*", "@gone", os.getpid(), 0, True, 1.0, 1)
    assert adapter_service.stop(gone)
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert adapter_service.stop(
        adapter_service.AdapterService("tested5=udp:*", "@gone", ended.pid, 0, True, 1.0, 1)
    )
