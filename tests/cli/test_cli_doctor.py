"""`softhca doctor`: each fact has its verdict, and what is not right says how to mend it."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from softhca.cli import doctor, doctor_facts
from softhca.cli.doctor_checks import LIMITED, OK, SLOW, UNKNOWN, VERDICTS, WRONG, Finding, findings
from softhca.cli.doctor_facts import Facts, Interface, dropped_datagrams, gather, port_holders
from softhca.cli.main import main

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
