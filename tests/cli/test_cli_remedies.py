"""Errors say what to do about them, in the same line."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

import pytest

from softhca.cli.errors import CommandError
from softhca.cli.main import describe, main
from softhca.cli.remedies import BY_NUMBER, remedy_of
from softhca.verbs.pyverbs_error import PyverbsRDMAError


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(("error", "remedy"), [
    (CommandError("x", "do this"), "do this"),
    (CommandError("x"), ""),
    (ValueError("x"), ""),
    (OSError(errno.EMFILE, "x"), BY_NUMBER[errno.EMFILE]),
    (OSError(errno.EIO, "x"), ""),
    (PyverbsRDMAError("x", errno.EADDRINUSE), BY_NUMBER[errno.EADDRINUSE]),
    (caused(CommandError("x"), OSError(errno.ENOMEM, "y")), BY_NUMBER[errno.ENOMEM]),
    (caused(CommandError("x", "do this"), OSError(errno.ENOMEM, "y")), "do this"),
])  # fmt: skip
def test_an_error_has_its_own_remedy_or_its_numbers(error: Exception, remedy: str) -> None:
    assert remedy_of(error) == remedy
    assert ("; " in describe(error)) == bool(remedy)
    assert describe(error).endswith(remedy)


def test_an_error_of_the_system_is_told_in_its_words_and_with_its_file() -> None:
    assert describe(OSError(errno.EIO, "no luck")) == "no luck"
    assert describe(OSError(errno.EIO, "no luck", "a file")) == "a file: no luck"
    assert describe(OSError(errno.EIO, "no luck", "a\nfile")) == "a file: no luck"  # one line in any case
    assert describe(OSError("of a library")) == "of a library (OSError)"


def test_a_full_disk_is_told_with_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", "--seeds", "1..1", "--scenario", "rnr", "--summary", "/dev/full"]) == 1
    said = capfd.readouterr().err
    assert said == f"softhca campaign: {os.strerror(errno.ENOSPC)}; {BY_NUMBER[errno.ENOSPC]}\n"


def test_an_address_that_is_taken_is_told_with_what_to_do(
    loopback_address: Callable[[], str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from softhca.driver import registry
    from softhca.runtime import devices

    taken = loopback_address()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind((taken, 4791))
        words = f"taken0=udp:{taken}"
        registry.names()
        devices.add(words)
        monkeypatch.setenv("SOFTHCA_DEVICES", words)
        try:
            assert main(["devinfo", "-d", "taken0"]) == 1
        finally:
            devices.remove("taken0")
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "another program has the address" in said


@pytest.mark.parametrize(("words", "remedy"), [
    (["run", "--", "./no-such-program"], "name a program of PATH"),
    (["ping", "127.0.0.1", "--port", "1"], "start the same command with --listen there"),
    (["capture", "decode", __file__], "name one that Wireshark"),
])  # fmt: skip
def test_what_fails_says_what_to_do(
    words: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert remedy in said
