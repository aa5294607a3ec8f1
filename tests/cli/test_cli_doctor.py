"""`softhca doctor`: each fact has its verdict, and what is not right says how to mend it."""

from __future__ import annotations

import json
import os
import resource
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from machine_speed import limit_s
from softhca.cli import doctor, doctor_facts
from softhca.cli.doctor_checks import LIMITED, OK, SLOW, UNKNOWN, VERDICTS, WRONG, Finding, findings
from softhca.cli.doctor_facts import UNLIMITED, Facts, Interface, dropped_datagrams, gather, port_holders
from softhca.cli.main import main
from softhca.links import sockets
from softhca.runtime.same_host_limits import LEAST_DESCRIPTORS

PERFECT = Facts()
CARD = Interface("eth0", 9000, "mlx5_core", True)


def found(facts: Facts) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings(facts)}


def test_a_machine_without_faults_has_nothing_to_mend() -> None:
    report = found(PERFECT)
    elsewhere = report.pop("packets elsewhere")
    assert (elsewhere.verdict, "softhca ping" in elsewhere.mend) == (UNKNOWN, True)
    assert {finding.verdict for finding in report.values()} == {OK}
    assert not any(finding.costs or finding.mend for finding in report.values())


@pytest.mark.parametrize(("change", "name", "verdict", "mend"), [
    ({"compiled": 0, "compilable": 91}, "modules", SLOW, "gcc"),
    ({"compiled": 90, "compilable": 91}, "modules", SLOW, "gcc"),
    ({"processors": 1.0}, "processors", SLOW, "two processors"),
    ({"load": 1.1}, "load", SLOW, "nothing else to do"),
    ({"clock": "acpi_pm"}, "clock", SLOW, "current_clocksource"),
    ({"receive_buffer_bytes": 425_984}, "receive buffer", SLOW, "net.core.rmem_max=4194304"),
    ({"send_buffer_bytes": 425_984}, "send buffer", SLOW, "net.core.wmem_max=4194304"),
    ({"dropped_datagrams": 3}, "dropped datagrams", SLOW, "rmem_max"),
    ({"segments": False, "merges": False}, "GSO and GRO", SLOW, "UDP_SEGMENT"),
    ({"merges": False}, "GSO and GRO", SLOW, "UDP_GRO"),
    ({"interfaces": (replace(CARD, mtu_bytes=1500, bursts=False),)}, "MTU of eth0", SLOW, "mtu 4200"),
    ({"interfaces": (replace(CARD, mtu_bytes=300, bursts=False),)}, "MTU of eth0", WRONG, "mtu 1500"),
    ({"interfaces": (CARD,)}, "bursts by eth0", SLOW, "segmenting="),
    ({"interfaces": (replace(CARD, bursts=None),)}, "bursts by eth0", UNKNOWN, ""),
    ({"port_holders": ("0.0.0.0",)}, "UDP port 4791", WRONG, "rdma_rxe"),
    ({"port_holders": ("127.0.0.2", "::")}, "UDP port 4791", WRONG, "rdma_rxe"),
    ({"devices": {"softhca0": "there is no interface 'eth9'"}}, "device softhca0", WRONG, "SOFTHCA_DEVICES"),
    ({"loopback_passes": False}, "packets here", WRONG, "nft"),
    ({"firewall": "ufw"}, "packets elsewhere", UNKNOWN, "ufw allow 4791/udp"),
    ({"firewall": "firewalld"}, "packets elsewhere", UNKNOWN, "firewall-cmd"),
    ({"no_same_host": "libatomic is missing"}, "shared memory", LIMITED, "libatomic1"),
    ({"no_same_host": "it may have few descriptors"}, "shared memory", LIMITED, "ulimit -n"),
    ({"no_same_host": "the order of memory on riscv64 is not proven for it"}, "shared memory", LIMITED, ""),
    ({"ptrace_scope": 1}, "ptrace rights", SLOW, "ptrace_scope=0"),
    ({"reads_memory": False, "may_trace": True}, "ptrace rights", SLOW, "process_vm_readv"),
    ({"descriptors": 255, "most_descriptors": 4096}, "descriptors", LIMITED, "ulimit -n 4096"),
    ({"descriptors": 1024, "most_descriptors": 1024}, "descriptors", SLOW, "limits.conf"),
    ({"address_space": 1 << 34}, "address space", LIMITED, "ulimit -v"),
    ({"overcommit": 2}, "address space", LIMITED, "overcommit_memory=0"),
    ({"mappings": 1000}, "mappings", LIMITED, "max_map_count"),
    ({"huge_pages": "never"}, "huge pages", SLOW, "enabled"),
    ({"shared_huge_pages": "never"}, "shared huge pages", SLOW, "shmem_enabled"),
])  # fmt: skip
def test_what_is_not_right_is_told_with_its_mend(change: dict, name: str, verdict: str, mend: str) -> None:
    report = found(replace(PERFECT, **change))
    assert report[name].verdict == verdict
    assert mend in report[name].mend
    assert bool(report[name].mend) == bool(mend)
    others = {other.verdict for other in report.values() if other.name not in (name, "packets elsewhere")}
    assert others == {OK}


ENOUGH = sockets.DESCRIPTORS_A_SENDER * sockets.MOST_SENDERS


@pytest.mark.parametrize(("change", "name", "verdict"), [
    ({"processors": 1.99}, "processors", SLOW),
    ({"load": 1.0}, "load", OK),
    ({"processors": 8.0, "load": 4.1}, "load", SLOW),
    ({"processors": 8.0, "load": 4.0}, "load", OK),
    ({"receive_buffer_bytes": 2 * sockets.BUFFER_BYTES - 1}, "receive buffer", SLOW),
    ({"send_buffer_bytes": 2 * sockets.BUFFER_BYTES - 1}, "send buffer", SLOW),
    ({"dropped_datagrams": 1}, "dropped datagrams", SLOW),
    ({"segments": False, "merges": True}, "GSO and GRO", SLOW),
    ({"interfaces": (replace(CARD, mtu_bytes=4096, bursts=False),)}, "MTU of eth0", SLOW),
    ({"interfaces": (replace(CARD, mtu_bytes=4200, bursts=False),)}, "MTU of eth0", OK),
    ({"descriptors": LEAST_DESCRIPTORS - 1}, "descriptors", LIMITED),
    ({"descriptors": LEAST_DESCRIPTORS}, "descriptors", SLOW),
    ({"descriptors": ENOUGH - 1}, "descriptors", SLOW),
    ({"descriptors": ENOUGH}, "descriptors", OK),
    ({"descriptors": UNLIMITED}, "descriptors", OK),
    ({"address_space": UNLIMITED - 1}, "address space", LIMITED),
    ({"overcommit": 1}, "address space", OK),
    ({"mappings": 65_529}, "mappings", LIMITED),
    ({"huge_pages": "always"}, "huge pages", OK),
    ({"huge_pages": ""}, "huge pages", SLOW),
    ({"shared_huge_pages": "deny"}, "shared huge pages", SLOW),
    ({"shared_huge_pages": "advise"}, "shared huge pages", SLOW),
    ({"shared_huge_pages": "always"}, "shared huge pages", OK),
])  # fmt: skip
def test_verdicts_change_just_where_they_should(change: dict, name: str, verdict: str) -> None:
    assert found(replace(PERFECT, **change))[name].verdict == verdict


@pytest.mark.parametrize(("change", "name", "words"), [
    ({"compiled": 3, "compilable": 7}, "modules", "3 of 7 are compiled interpreted many times"),
    ({"processors": 1.5}, "processors", "1.5 share one"),
    ({"load": 3.25}, "load", "3.2 on 2 processors waits for its turn"),
    ({}, "clock", "tsc"),
    ({"clock": ""}, "clock", "the kernel does not tell"),
    ({"clock": "hpet"}, "clock", "hpet system call"),
    ({"receive_buffer_bytes": 425_984}, "receive buffer", "212,992 bytes a socket many peers sent again"),
    ({"send_buffer_bytes": 425_984}, "send buffer", "212,992 bytes a socket long chains wait"),
    ({"dropped_datagrams": 1234}, "dropped datagrams", "1,234 of all programs time-out"),
    ({"merges": False}, "GSO and GRO", "bursts are sent, and arrive as single datagrams"),
    ({"segments": False}, "GSO and GRO", "bursts cannot be sent"),
    ({"interfaces": ()}, "MTU", "no interface but the loopback"),
    ({"interfaces": (replace(CARD, mtu_bytes=1500),)}, "MTU of eth0", "1500 path MTU is 1024 4 packets"),
    ({"interfaces": (replace(CARD, bursts=False),)}, "bursts by eth0", "the kernel cuts them"),
    ({"interfaces": (replace(CARD, driver="veth"),)}, "bursts by eth0", "they pass whole"),
    ({"interfaces": (CARD,)}, "bursts by eth0", "the card (mlx5_core) cuts them ICRC covers"),
    ({"interfaces": (replace(CARD, driver=""),)}, "bursts by eth0", "(no driver told)"),
    ({"port_holders": ("::", "1.0.0.1", "0.0.0.0")}, "UDP port 4791", "addresses (:: 0.0.0.0) no adapter"),
    ({"port_holders": ("10.0.0.1", "10.0.0.2")}, "UDP port 4791", "taken on 10.0.0.1, 10.0.0.2"),
    ({}, "UDP port 4791", "free on all addresses"),
    ({"devices": {"x": "no such place"}}, "device x", "no such place it cannot be opened"),
    ({"firewall": "ufw"}, "packets elsewhere", "ufw is on"),
    ({}, "packets elsewhere", "only root sees"),
    ({"may_see_rules": True}, "packets elsewhere", "neither nft nor iptables is installed"),
    ({"may_see_rules": True, "rules": {"nft": 0, "iptables-save": None}}, "packets elsewhere",
     "nft lists 0 rules, iptables-save does not tell"),
    ({"may_see_rules": True, "rules": {"nft": 1200}, "firewall": "ufw"}, "packets elsewhere", "ufw is on"),
    ({"no_same_host": "no room"}, "shared memory", "no room goes by packets"),
    ({"ptrace_scope": 3}, "ptrace rights", "ptrace_scope is 3 goes by packets"),
    ({"descriptors": 1024, "most_descriptors": ENOUGH}, "descriptors", f"1,024 ulimit -n {ENOUGH}"),
    ({"descriptors": 1024}, "descriptors", f"beyond {1024 // sockets.DESCRIPTORS_A_SENDER} connections"),
    ({"descriptors": UNLIMITED}, "descriptors", "unlimited"),
    ({"address_space": 1 << 30}, "address space", "1,073,741,824 bytes no shared memory"),
    ({"overcommit": 2}, "address space", "never overcommits 32 GiB"),
    ({"mappings": 4000}, "mappings", "4,000 spread as far"),
    ({"huge_pages": ""}, "huge pages", "the kernel has none"),
    ({"huge_pages": "never"}, "huge pages", "never copies of a megabyte"),
])  # fmt: skip
def test_findings_say_what_is_there_and_what_it_costs(change: dict, name: str, words: str) -> None:
    finding = found(replace(PERFECT, **change))[name]
    text = f"{finding.found} {finding.costs} {finding.mend}"
    place = 0
    for word in words.split():
        assert word in text[place:], (word, text)
        place = text.index(word, place)


def test_everything_is_checked_once_and_in_the_order_of_reading() -> None:
    names = [finding.name for finding in findings(replace(PERFECT, interfaces=(CARD,), devices={"a": ""}))]
    assert names == [
        "modules", "processors", "load", "clock", "receive buffer", "send buffer", "dropped datagrams",
        "GSO and GRO", "MTU of eth0", "bursts by eth0", "UDP port 4791", "device a", "packets here",
        "packets elsewhere", "shared memory", "ptrace rights", "descriptors", "address space", "mappings",
        "huge pages", "shared huge pages",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [
    ("max 100000", 6.0), ("150000 100000", 1.5), ("900000 100000", 6.0), ("", 6.0), ("5 0", 6.0),
])  # fmt: skip
def test_a_quota_of_the_control_group_counts(
    text: str, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_facts.os, "sched_getaffinity", lambda _: set(range(6)))
    monkeypatch.setattr(doctor_facts, "_read", lambda path: text if path.endswith("/cpu.max") else "")
    assert doctor_facts._processors() == expected


@pytest.mark.parametrize(("status", "may"), [
    ("Name: x\nCapEff:\t0000000000080000\n", True), ("CapEff:\t000001ffffffffff", True),
    ("CapEff:\t0000000000040000", False), ("CapPrm:\t0000000000080000\nCapEff:\t0", False), ("", False),
])  # fmt: skip
def test_the_right_to_trace_is_one_bit(status: str, may: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_facts, "_read", lambda path: status if path == "/proc/self/status" else "")
    assert doctor_facts._may(doctor_facts._CAP_SYS_PTRACE) is may


def test_words_of_the_kernel_are_read_and_their_absence_borne(tmp_path: Path) -> None:
    (file := tmp_path / "word").write_text("always [madvise] never\n")
    absent = str(tmp_path / "absent")
    assert doctor_facts._chosen(str(file)) == "madvise"
    assert doctor_facts._read(str(file)) == "always [madvise] never"
    assert doctor_facts._chosen(absent) == doctor_facts._read(absent) == ""
    file.write_text("always madvise\n")
    assert doctor_facts._chosen(str(file)) == ""
    assert doctor_facts._number(str(file), 7) == doctor_facts._number(absent, 7) == 7
    file.write_text("12\n")
    assert doctor_facts._number(str(file), 7) == 12
    assert doctor_facts._limit(resource.RLIM_INFINITY) == UNLIMITED
    assert doctor_facts._limit(99) == 99


@pytest.mark.parametrize(("text", "firewall"), [
    ("# ENABLED=yes\nENABLED=yes\n", "ufw"), ("# ENABLED=yes\nENABLED=no\n", ""), ("", ""),
])  # fmt: skip
def test_ufw_says_whether_it_is_on(text: str, firewall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_facts, "_read", lambda path: text if path == "/etc/ufw/ufw.conf" else "")
    monkeypatch.setattr(doctor_facts.Path, "exists", lambda path: False)
    assert doctor_facts._firewall() == firewall
    monkeypatch.setattr(doctor_facts.Path, "exists", lambda path: str(path) == "/run/firewalld.pid")
    assert doctor_facts._firewall() == (firewall or "firewalld")


NFT = '{"nftables": [{"metainfo": {}}, {"table": {}}, {"chain": {}}, {"rule": {}}, {"rule": {}}]}'
SAVED = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\nCOMMIT\n"


@pytest.mark.parametrize(("tools", "rules"), [
    ({}, {}),
    ({"nft": ("-j list ruleset", NFT, 0)}, {"nft": 2}),
    ({"nft": ("-j list ruleset", '{"nftables": []}', 0)}, {"nft": 0}),
    ({"iptables-save": ("", SAVED, 0), "ip6tables-save": ("", "*filter\nCOMMIT\n", 0)},
     {"iptables-save": 1, "ip6tables-save": 0}),
    ({"nft": ("-j list ruleset", NFT, 1), "iptables-save": ("", SAVED, 0)},
     {"nft": None, "iptables-save": 1}),
    ({"nft": ("-j list ruleset", "no JSON", 0)}, {"nft": None}),
    ({"nft": ("-j list ruleset", '{"nftables": 5}', 0)}, {"nft": None}),
    ({"nft": ("-j list ruleset", "[]", 0)}, {"nft": None}),
    ({"nft": ("another question", NFT, 0)}, {"nft": None}),
])  # fmt: skip
def test_who_may_see_rules_asks_the_programs_that_list_them(
    tools: dict, rules: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (words, said, status) in tools.items():
        (tmp_path / "said").mkdir(exist_ok=True)
        (tmp_path / "said" / name).write_text(f"{said}\n")
        (tool := tmp_path / name).write_text(
            f'#!/bin/sh\n[ "$*" = "{words}" ] || exit 2\nwhile read -r line; do echo "$line"; done '
            f'<"{tmp_path}/said/{name}"\nexit {status}\n'
        )
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    which = doctor_facts.shutil.which
    monkeypatch.setattr(  # this machine has none of its own
        doctor_facts.shutil, "which", lambda name, path: which(name, path=path.split(os.pathsep)[0])
    )
    assert doctor_facts._rules() == rules


@pytest.mark.parametrize("passes", [False, True])
def test_what_others_send_is_not_taken_for_what_was_sent(
    monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    """The address is nobody's, and a peer that is gone may still be sought there."""

    def sendto(self: socket.socket, text: bytes, address: Any) -> None:
        for each in (b"another's", *([text] if passes else [])):
            self.sendmsg([each], [], 0, address)

    monkeypatch.setattr(doctor_facts, "_TRY_S", 0.01 if not passes else limit_s(20))
    monkeypatch.setattr(doctor_facts.socket.socket, "sendto", sendto)
    assert doctor_facts._loopback_passes() is passes


def test_sockets_that_get_nothing_through_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that drops what comes: a burst is not sent, and a datagram does not arrive."""
    monkeypatch.setattr(doctor_facts, "_TRY_S", 0.01)
    monkeypatch.setattr(doctor_facts.socket.socket, "sendto", lambda *_: 0)
    assert doctor_facts._sockets()[2:] == (False, False)
    assert not doctor_facts._loopback_passes()


def test_bursts_that_arrive_in_pieces_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor_facts.sockets.open_receiver
    monkeypatch.setattr(doctor_facts.sockets, "open_receiver", lambda *words: real(*words[:-1], False))
    assert doctor_facts._sockets()[3] is False


def test_a_small_mtu_costs_packets_and_a_kernel_without_huge_pages_has_no_mend() -> None:
    small = replace(PERFECT, interfaces=(replace(CARD, mtu_bytes=1500),))
    assert found(small)["MTU of eth0"].costs == "4 packets where one would do"
    assert found(replace(PERFECT, huge_pages=""))["huge pages"].mend == ""


def test_a_loopback_that_passes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_facts._loopback_passes()
    taken = OSError("taken")

    def refuse(*_: object) -> None:
        raise taken

    monkeypatch.setattr(doctor_facts.sockets, "bound_socket", refuse)
    assert doctor_facts._loopback_passes(), "where no address is free nothing is known to be wrong"


def test_a_sandbox_may_refuse_to_read_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_facts._reads_memory()
    monkeypatch.setattr(doctor_facts.primitives, "read_process", lambda *_: 7)  # and nothing was read
    assert not doctor_facts._reads_memory()
    monkeypatch.setattr(doctor_facts.primitives, "read_process", lambda *_: -1)
    assert not doctor_facts._reads_memory()


@pytest.mark.parametrize("change", [
    {"ptrace_scope": 2, "may_trace": True}, {"interfaces": (replace(CARD, driver="veth"),)},
    {"interfaces": (replace(CARD, bursts=False),)}, {"port_holders": ("127.0.0.2",)},
    {"devices": {"softhca0": ""}}, {"clock": ""}, {"clock": "kvm-clock"},
])  # fmt: skip
def test_what_is_as_good_is_right(change: dict) -> None:
    verdicts = {finding.verdict for finding in findings(replace(PERFECT, **change))}
    assert verdicts == {OK, UNKNOWN}


def test_who_has_the_port_is_read_from_the_kernels_tables() -> None:
    """Words of 32 bits in host byte order; other ports, headers and what is no table are passed over."""
    head = "  sl  local_address rem_address   st\n"
    row = " 8261: {}:{} 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 3091957 2 0 0\n"
    four = head + row.format("0200007F", "12B7") + row.format("0300007F", "12B8")
    six = head + row.format("B80D0120000000000000000001000000", "12B7") + row.format("zz", "12B7")
    assert port_holders(four, six) == ("127.0.0.2", "2001:db8::1")
    assert port_holders("", row.format("00000000", "12B7")) == ("0.0.0.0",)


def test_dropped_datagrams_are_counted_by_name() -> None:
    text = "Ip: A\nIp: 1\nUdp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 7 5 3\nUdpLite: RcvbufErrors\n"
    assert dropped_datagrams(text) == 5
    assert dropped_datagrams("") == dropped_datagrams("Udp: InDatagrams\nUdp: 7\n") == 0


def test_the_devices_of_the_environment_are_tried(
    monkeypatch: pytest.MonkeyPatch, loopback_address: object
) -> None:
    free, taken = loopback_address(), loopback_address()  # type: ignore[operator]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind((taken, 4791))
        words = f"a=udp:{free},b=udp:{taken},c=udp:nothere0,d=udp:192.0.2.1,e=udp:*"
        monkeypatch.setenv("SOFTHCA_DEVICES", words)
        facts = gather()
    assert facts.devices["a"] == facts.devices["e"] == ""
    assert "is taken" in facts.devices["b"]
    assert "nothere0" in facts.devices["c"]
    assert facts.devices["d"]
    assert taken in facts.port_holders
    monkeypatch.setenv("SOFTHCA_DEVICES", "nonsense")
    (wrong,) = gather().devices.items()
    assert wrong[0] == "SOFTHCA_DEVICES"
    assert "nonsense" in wrong[1]


def test_modules_are_counted_by_what_stands_beside_them(tmp_path: Path) -> None:
    for name in ("a.pxd", "a.cpython-311.so", "b.pxd", "__init__.pxd", "c.py"):
        (tmp_path / name).touch()
    assert doctor_facts._modules(tmp_path) == (1, 2)


def test_this_machine_has_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever this machine is: the document is whole, and its status follows from it."""
    status = main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"works", "system", "checks"}
    assert status == (0 if document["works"] else 1)
    assert document["works"] == all(check["verdict"] != WRONG for check in document["checks"])
    names = [check["name"] for check in document["checks"]]
    assert len(set(names)) == len(names)
    for check in document["checks"]:
        assert set(check) == {"name", "verdict", "found", "costs", "mend"}
        assert check["verdict"] in VERDICTS
        assert check["found"]


@pytest.mark.parametrize(("facts", "words", "status"), [
    (PERFECT, [], 0),
    (PERFECT, ["--all"], 0),
    (replace(PERFECT, loopback_passes=False), [], 1),
    (replace(PERFECT, ptrace_scope=1), [], 0),
])  # fmt: skip
def test_the_table_shows_what_is_to_be_mended(
    facts: Facts, words: list[str], status: int,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(doctor_facts, "gather", lambda: facts)
    assert main(["doctor", *words]) == status
    shown = capsys.readouterr().out
    report = findings(facts)
    assert f"of {len(report)} checks are right" in shown
    for finding in report:
        told = finding.name in shown
        assert told or (finding.verdict == OK and not words)
    assert ("descriptors" in shown) == bool(words)


def test_every_verdict_has_its_mark() -> None:
    assert set(doctor.MARKS) == set(VERDICTS)
