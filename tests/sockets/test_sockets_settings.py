"""What may be set of sockets, and how those are made that `create_connection` and `create_server` give."""

from __future__ import annotations

import socket as kernel
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from softhca.sockets import creation, replacing
from softhca.sockets.protocol import LARGEST_POOL_BYTES, SMALLEST_POOL_BYTES
from softhca.sockets.settings import MOST_ACK_TIMEOUT, Settings

TIMES = ("threshold_bytes", "direct_bytes", "connect_s", "credit_s", "linger_s", "keepalive_s")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("pool_bytes", SMALLEST_POOL_BYTES, LARGEST_POOL_BYTES), ("staging_bytes", 4096, LARGEST_POOL_BYTES),
     ("chunk_bytes", 4096, LARGEST_POOL_BYTES), ("ack_timeout", 1, MOST_ACK_TIMEOUT)],
)  # fmt: skip
def test_numbers_have_bounds(name: str, least: int, most: int) -> None:
    for good in (least, most):
        assert getattr(Settings(**{name: good}), name) == good
    for bad in (least - 1, most + 1, 0, -least):
        with pytest.raises(ValueError, match=name):
            Settings(**{name: bad})


def test_a_pool_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        Settings(pool_bytes=SMALLEST_POOL_BYTES + 4096)


@pytest.mark.parametrize("name", TIMES)
def test_no_size_and_no_time_is_negative(name: str) -> None:
    assert getattr(Settings(**{name: 0}), name) == 0
    with pytest.raises(ValueError, match="not negative"):
        Settings(**{name: -1})


def test_a_pool_for_so_many_bytes_is_the_smallest_that_holds_them() -> None:
    for wanted, found in (
        (0, SMALLEST_POOL_BYTES), (SMALLEST_POOL_BYTES, SMALLEST_POOL_BYTES), (1 << 20, 1 << 20),
        ((1 << 20) + 1, 1 << 21), (LARGEST_POOL_BYTES + 1, LARGEST_POOL_BYTES),
    ):  # fmt: skip
        assert Settings(linger_s=9).with_pool(wanted) == Settings(linger_s=9, pool_bytes=found)


def test_an_environment_says_each_of_them() -> None:
    said = {"MAPPING": "0", "IN_MEMORY": "yes", "BY_CM": "1", "DATAGRAMS": "", "CONNECT_S": "0.25",
            "ACK_TIMEOUT": "31", "OTHER": "x"}  # fmt: skip
    found = Settings.of_environment({f"SOFTHCA_SOCKETS_{name}": text for name, text in said.items()})
    assert found == Settings(mapping=False, in_memory=True, by_cm=True, connect_s=0.25, ack_timeout=31)
    assert Settings.of_environment({}) == Settings()
    with pytest.raises(ValueError, match="ack_timeout"):
        Settings.of_environment({"SOFTHCA_SOCKETS_ACK_TIMEOUT": "32"})
    assert {each.type for each in fields(Settings)} == {"int", "float", "bool"}


class Made:
    """A socket that notes what is done with it; ``fails`` are addresses that nobody listens at."""

    all: tuple[Made, ...] = ()
    fails: tuple[Any, ...] = ()

    def __init__(self, *kind: int) -> None:
        self.kind, self.noted = kind, list[tuple[Any, ...]]()
        Made.all += (self,)

    def __getattr__(self, name: str) -> Any:
        def note(*what: Any) -> None:
            self.noted.append((name, *what))
            if name in ("connect", "listen") and what[0] in Made.fails:
                raise ConnectionRefusedError(what[0])

        return note


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> type[Made]:
    monkeypatch.setattr(creation, "socket", Made)
    monkeypatch.setattr(Made, "all", ())
    monkeypatch.setattr(Made, "fails", ())
    found = [(kernel.AF_INET6, kernel.SOCK_STREAM, 6, "", ("::1", 5, 0, 0)),
             (kernel.AF_INET, kernel.SOCK_STREAM, 6, "", ("127.0.0.1", 5))]  # fmt: skip
    monkeypatch.setattr(creation.kernel, "getaddrinfo", lambda *_: found)
    return Made


def test_a_connection_is_made_to_the_first_address_that_answers(made: type[Made]) -> None:
    made.fails = (("::1", 5, 0, 0),)
    one = creation.create_connection(("localhost", 5), 3.0, ("127.0.0.1", 0))
    first, second = made.all
    assert one is second  # type: ignore[comparison-overlap]
    assert (first.kind[0], second.kind[0]) == (kernel.AF_INET6, kernel.AF_INET)
    begins = [("settimeout", 3.0), ("bind", ("127.0.0.1", 0))]
    assert first.noted == [*begins, ("connect", ("::1", 5, 0, 0)), ("close",)]
    assert second.noted == [*begins, ("connect", ("127.0.0.1", 5))]


def test_a_connection_that_nobody_takes_is_refused_as_the_last_address_was(made: type[Made]) -> None:
    made.fails = (("::1", 5, 0, 0), ("127.0.0.1", 5))
    with pytest.raises(ConnectionRefusedError) as told:
        creation.create_connection(("localhost", 5))
    assert told.value.args == (("127.0.0.1", 5),)
    assert [each.noted[-1] for each in made.all] == [("close",)] * 2
    assert all(each.noted[0][0] == "connect" for each in made.all)  # no time-out was said


def test_a_server_has_the_options_of_python_s_own(made: type[Made]) -> None:
    creation.create_server(("127.0.0.1", 5))
    creation.create_server(("::", 5), family=kernel.AF_INET6, backlog=7, reuse_port=True)
    creation.create_server(("::", 5), family=kernel.AF_INET6, backlog=0, dualstack_ipv6=True)
    reuse = ("setsockopt", kernel.SOL_SOCKET, kernel.SO_REUSEADDR, 1)
    alone = ("setsockopt", kernel.IPPROTO_IPV6, kernel.IPV6_V6ONLY)
    assert [each.noted for each in made.all] == [
        [reuse, ("bind", ("127.0.0.1", 5)), ("listen", 128)],
        [reuse, ("setsockopt", kernel.SOL_SOCKET, kernel.SO_REUSEPORT, 1), (*alone, 1), ("bind", ("::", 5)),
         ("listen", 7)],
        [reuse, (*alone, 0), ("bind", ("::", 5)), ("listen", 0)],
    ]  # fmt: skip


def test_a_server_that_cannot_listen_is_closed_and_two_stacks_need_ipv6(made: type[Made]) -> None:
    made.fails = (9,)
    with pytest.raises(ConnectionRefusedError):
        creation.create_server(("127.0.0.1", 5), backlog=9)
    assert made.all[0].noted[-1] == ("close",)
    with pytest.raises(ValueError, match="AF_INET6"):
        creation.create_server(("127.0.0.1", 5), dualstack_ipv6=True)
    assert len(made.all) == 1


def test_a_program_s_own_sitecustomize_runs_behind_that_of_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(f"import sys\nsys.flags_of_test.append({folder.name!r})\n")
    ran: list[str] = []
    monkeypatch.setattr(sys, "flags_of_test", ran, raising=False)
    monkeypatch.setattr(sys, "path", [str(ours), str(theirs)])
    monkeypatch.setitem(sys.modules, "sitecustomize", None)
    monkeypatch.setattr(replacing, "install", lambda: ran.append("sockets"))
    replacing.start(str(ours))
    assert ran == ["sockets", "theirs"]
    assert sys.modules["sitecustomize"].__file__ == str(theirs / "sitecustomize.py")
