"""The names at which adapter processes are found: who has one, whose it is, and who is connected."""

from __future__ import annotations

import errno
import io
import os
import socket
from dataclasses import replace
from typing import Any

import pytest

from softhca.runtime import listening_name
from softhca.runtime.specification import parse_one

USER = os.getuid()


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("a=udp:127.0.0.5", f"@softhca-{USER}-127.0.0.5"),
        ("b=udp:127.0.0.5+udp:[::1]", f"@softhca-{USER}-127.0.0.5+::1"),
        ("a=udp:*", ""), ("a=udp:127.0.0.5+udp:*", ""), ("a=unix:/tmp/x", ""), ("a=fabric:F/h1", ""),
    ],
)  # fmt: skip
def test_the_name_is_that_of_the_user_and_all_addresses(word: str, name: str) -> None:
    assert listening_name.name_of(parse_one(word)) == name


def test_a_name_that_is_too_long_is_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_name, "resolve", lambda place: place)
    one = parse_one("a=udp:127.0.0.5")
    front = len(f"@softhca-{USER}-")
    longest = replace(one, place="x" * (listening_name.LONGEST - front))
    assert listening_name.name_of(longest).endswith("xxx")
    longer = listening_name.name_of(replace(one, place="x" * (listening_name.LONGEST - front + 1)))
    assert "x" not in longer.removeprefix("@softhca")
    assert len(longer) == front + 64 <= listening_name.LONGEST


def test_a_name_is_taken_once() -> None:
    name = f"@softhca-test-{os.getpid()}"
    first = listening_name.take(name)
    assert first is not None
    with first:
        assert listening_name.take(name) is None
        assert listening_name.is_taken(name)
    assert not listening_name.is_taken(name)
    assert not listening_name.is_taken(name)  # it was asked for, and given back


def test_any_other_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(socket.socket):
        def bind(self, _: Any) -> None:
            raise PermissionError(errno.EACCES, "no")

    monkeypatch.setattr(listening_name.socket, "socket", Refusing)
    with pytest.raises(PermissionError):
        listening_name.take("@softhca-never")


@pytest.mark.parametrize(("uid", "right"), [(1000, True), (0, True), (1001, False)])
def test_another_user_s_process_is_none_of_ours(
    monkeypatch: pytest.MonkeyPatch, uid: int, right: bool
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(listening_name.messages, "peer_of", lambda _: (1, uid))
    if right:
        listening_name.check_owner(None, "@name")  # type: ignore[arg-type]
        return
    with pytest.raises(OSError, match=f"name is the name of a socket of user {uid}") as told:
        listening_name.check_owner(None, "@name")  # type: ignore[arg-type]
    assert told.value.errno == errno.EPERM


def test_connections_are_those_that_are_made_or_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "Num RefCount Protocol Flags Type St Inode Path\n" + "".join(
        f"0000: 00000002 00000000 00000000 0005 {state} 123{path}\n"
        for state, path in (
            ("01", " @one"), ("02", " @one"), ("03", " @one"), ("03", " @one"), ("04", " @one"),
            ("03", " @on"), ("03", " @one two"), ("03", ""), ("03", " @two words"),
        )
    )  # fmt: skip
    monkeypatch.setattr("builtins.open", lambda *_: io.StringIO(lines))
    assert [listening_name.connections(name) for name in ("@one", "@two words", "@none")] == [3, 1, 0]


def test_where_the_system_does_not_tell_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(*_: object) -> None:
        raise PermissionError(errno.EACCES, "hidden")

    monkeypatch.setattr("builtins.open", hidden)
    assert listening_name.connections("@one") == 0
