"""What `softhca doctor` knows of the machine, as an ordinary user can see it.

`gather` asks the kernel; nothing is changed, and what it opens it closes.  `doctor_checks` judges.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import softhca
from softhca.cli.launch import ROCE_PORT
from softhca.links import interfaces, netlink, sockets
from softhca.machine import primitives
from softhca.runtime.same_host_limits import not_automatic
from softhca.runtime.specification import DeviceSpecificationError, parse, resolve

UNLIMITED = 1 << 62
"""Stands for a limit that there is not."""

_UDP_SEGMENT = 103
_SEGMENT_BYTES, _SEGMENTS = 1000, 8
_TRY_S = 1.0
_TOOL_S = 10.0
_CAP_NET_ADMIN, _CAP_SYS_PTRACE = 12, 19
_RULE_TOOLS = {"nft": ("-j", "list", "ruleset"), "iptables-save": (), "ip6tables-save": ()}
"""Programs that list a firewall's rules to root, and how they are asked."""


@dataclass(frozen=True)
class Interface:
    """One network interface that has an address and is no loopback.

    ``bursts``: it is given UDP bursts whole, to cut them itself; None: it does not tell.
    """

    name: str
    mtu_bytes: int
    driver: str
    bursts: bool | None


@dataclass(frozen=True)
class Facts:
    """The machine and this process's limits; sizes in bytes, ``UNLIMITED`` where there is no limit.

    The defaults are those of a machine on which nothing is to be said.
    """

    compiled: int = 1
    compilable: int = 1
    processors: float = 2.0
    load: float = 0.0
    clock: str = "tsc"
    receive_buffer_bytes: int = 2 * sockets.BUFFER_BYTES
    send_buffer_bytes: int = 2 * sockets.BUFFER_BYTES
    dropped_datagrams: int = 0
    segments: bool = True
    merges: bool = True
    interfaces: tuple[Interface, ...] = ()
    port_holders: tuple[str, ...] = ()
    devices: dict[str, str] = field(default_factory=dict)
    loopback_passes: bool = True
    firewall: str = ""
    may_see_rules: bool = False
    rules: dict[str, int | None] = field(default_factory=dict)
    """How many rules of a firewall each program lists that is installed; None: it does not tell."""
    ptrace_scope: int = 0
    may_trace: bool = False
    reads_memory: bool = True
    no_same_host: str = ""
    descriptors: int = 1 << 20
    most_descriptors: int = 1 << 20
    address_space: int = UNLIMITED
    overcommit: int = 0
    mappings: int = 65_530
    huge_pages: str = "madvise"
    shared_huge_pages: str = "within_size"


def gather() -> Facts:
    """Look at everything; takes some milliseconds."""
    receive_bytes, send_bytes, segments, merges = _sockets()
    soft, hard = (_limit(value) for value in resource.getrlimit(resource.RLIMIT_NOFILE))
    compiled, compilable = _modules(Path(softhca.__file__).parent)
    return Facts(
        compiled=compiled,
        compilable=compilable,
        processors=_processors(),
        load=os.getloadavg()[0],
        clock=_read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        receive_buffer_bytes=receive_bytes,
        send_buffer_bytes=send_bytes,
        dropped_datagrams=dropped_datagrams(_read("/proc/net/snmp")),
        segments=segments,
        merges=merges,
        interfaces=_interfaces(),
        port_holders=port_holders(_read("/proc/net/udp"), _read("/proc/net/udp6")),
        devices=_devices(),
        loopback_passes=_loopback_passes(),
        firewall=_firewall(),
        may_see_rules=_may(_CAP_NET_ADMIN),
        rules=_rules() if _may(_CAP_NET_ADMIN) else {},
        ptrace_scope=_number("/proc/sys/kernel/yama/ptrace_scope", 0),
        may_trace=_may(_CAP_SYS_PTRACE),
        reads_memory=_reads_memory(),
        no_same_host=not_automatic(),
        descriptors=soft,
        most_descriptors=hard,
        address_space=_limit(resource.getrlimit(resource.RLIMIT_AS)[0]),
        overcommit=_number("/proc/sys/vm/overcommit_memory", 0),
        mappings=_number("/proc/sys/vm/max_map_count", 65_530),
        huge_pages=_chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        shared_huge_pages=_chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
    )


def _read(path: str) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _number(path: str, otherwise: int) -> int:
    text = _read(path)
    return int(text) if text.isdigit() else otherwise


def _chosen(path: str) -> str:
    """The word in brackets, as the kernel marks what is chosen; empty where there is no choice."""
    found = re.search(r"\[(\w+)\]", _read(path))
    return found[1] if found else ""


def _limit(value: int) -> int:
    return UNLIMITED if value == resource.RLIM_INFINITY else value


def _modules(package: Path) -> tuple[int, int]:
    """How many modules are compiled, and how many could be: those beside which a ``.pxd`` stands."""
    descriptions = [path for path in package.rglob("*.pxd") if path.stem != "__init__"]
    compiled = [path for path in descriptions if any(path.parent.glob(f"{path.stem}.*.so"))]
    return len(compiled), len(descriptions)


def _processors() -> float:
    """Those that this process may run on; fewer where its control group has a quota."""
    count = float(len(os.sched_getaffinity(0)))
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        count = min(count, int(quota) / int(period))
    return count


def _sockets() -> tuple[int, int, bool, bool]:
    """Bytes of a receive and a send buffer as the kernel counts them, whether bursts can be sent, and whether
    they arrive whole over the loopback.
    """
    with contextlib.ExitStack() as open_sockets:
        receiver, _ = sockets.open_receiver("127.0.0.1", 0, 0, sockets.BUFFER_BYTES, True)
        open_sockets.enter_context(receiver)
        sender = sockets.open_sender("127.0.0.1", 0, 0, sockets.BUFFER_BYTES)
        open_sockets.enter_context(sender)
        receive_bytes = receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        send_bytes = sender.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        try:
            sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, _SEGMENT_BYTES)
            sender.sendto(bytes(_SEGMENT_BYTES * _SEGMENTS), receiver.getsockname())
            receiver.settimeout(_TRY_S)
            whole = len(receiver.recv(1 << 16)) == _SEGMENT_BYTES * _SEGMENTS
            return receive_bytes, send_bytes, True, whole
        except OSError:
            return receive_bytes, send_bytes, False, False


def dropped_datagrams(counters: str) -> int:
    """How many datagrams the kernel has dropped for want of room in a socket, by the text of
    ``/proc/net/snmp``.
    """
    rows = [line.split() for line in counters.splitlines() if line.startswith("Udp: ")]
    if len(rows) != 2 or len(rows[0]) != len(rows[1]) or "RcvbufErrors" not in rows[0]:
        return 0
    return int(rows[1][rows[0].index("RcvbufErrors")])


def _interfaces() -> tuple[Interface, ...]:
    found: dict[str, Interface] = {}
    for entry in netlink.addresses():
        with contextlib.suppress(OSError):
            name = socket.if_indextoname(entry.interface_index)
            if name in found or entry.address[:1] == b"\x7f" or entry.address == bytes(15) + b"\1":
                continue
            bursts = None
            with contextlib.suppress(OSError):
                bursts = interfaces.takes_bursts(name)
            mtu_bytes = interfaces.mtu_of_interface(name)
            found[name] = Interface(name, mtu_bytes, interfaces.driver_of_interface(name), bursts)
    return tuple(found.values())


def port_holders(*tables: str) -> tuple[str, ...]:
    """The addresses whose RoCE port is taken, by the texts of ``/proc/net/udp`` and ``udp6``."""
    holders = []
    for row in "\n".join(tables).splitlines():
        words = row.split()
        address, _, port = words[1].rpartition(":") if len(words) > 1 else ("", "", "")
        if re.fullmatch(r"(?:[0-9A-F]{8}){1,4}", address) and port == f"{ROCE_PORT:04X}":
            holders.append(_address(address))
    return tuple(sorted(set(holders)))


def _address(hexadecimal: str) -> str:
    """An address as text of the way in which the kernel prints it: words of 32 bits in host byte order."""
    words = [bytes.fromhex(hexadecimal[at : at + 8])[::-1] for at in range(0, len(hexadecimal), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))


def _devices() -> dict[str, str]:
    """What hinders each device of ``SOFTHCA_DEVICES`` from being opened by name; empty: nothing."""
    try:
        devices = parse(os.environ.get("SOFTHCA_DEVICES", ""))
    except DeviceSpecificationError as error:
        return {"SOFTHCA_DEVICES": str(error)}
    return {device.name: "; ".join(filter(None, map(_hindrance, device.places)))
            for device in devices if device.kind == "udp"}


def _hindrance(place: str) -> str:
    if not place:
        return ""
    try:
        address = resolve(place)
        scope = interfaces.parse_address(address)[1]
        sockets.bound_socket(address.partition("%")[0], ROCE_PORT, scope).close()
    except DeviceSpecificationError as error:
        return str(error)
    except OSError as error:
        held = error.errno == errno.EADDRINUSE
        return f"{place}: {f'UDP port {ROCE_PORT} is taken' if held else error.strerror}"
    return ""


def _loopback_passes() -> bool:
    """Whether a datagram to the RoCE port of a free loopback address arrives, among others that anybody may
    send there.  True where none is free.
    """
    text = b"softhca doctor " + os.urandom(16)
    for host in range(2, 255):
        try:
            receiver = sockets.bound_socket(f"127.0.0.{host}", ROCE_PORT)
        except OSError:
            continue
        with receiver, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            try:
                sender.sendto(text, receiver.getsockname())
                end_s = time.monotonic() + _TRY_S
                while (left_s := end_s - time.monotonic()) > 0:
                    receiver.settimeout(left_s)
                    if receiver.recv(64) == text:
                        return True
            except OSError:
                pass
            return False
    return True


def _firewall() -> str:
    """Which of the usual firewalls is on; empty where none of them is."""
    if re.search(r"^ENABLED=yes", _read("/etc/ufw/ufw.conf"), re.MULTILINE):
        return "ufw"
    return "firewalld" if Path("/run/firewalld.pid").exists() else ""


def _rules() -> dict[str, int | None]:
    """How many rules each installed program lists, for who may see them."""
    found = {}
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    for name, words in _RULE_TOOLS.items():
        if (tool := shutil.which(name, path=path)) is not None:
            found[name] = _rules_of(name, [tool, *words])
    return found


def _rules_of(name: str, command: list[str]) -> int | None:
    """How many rules a program lists; None where it fails or says something else."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOOL_S,
                              check=True)  # fmt: skip
        if name == "nft":
            return sum("rule" in entry for entry in json.loads(done.stdout)["nftables"])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return None
    return sum(line.startswith(b"-A ") for line in done.stdout.splitlines())


def _may(capability: int) -> bool:
    """Whether this process has a capability of the kernel, by its number."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", _read("/proc/self/status"), re.MULTILINE)
    return bool(found and int(found[1], 16) >> capability & 1)


def _reads_memory() -> bool:
    """Whether process_vm_readv is allowed at all: a process may always read its own memory by it."""
    source, target = bytearray(b"softhca"), bytearray(7)
    addresses = primitives.address_of(target), primitives.address_of(source)
    return primitives.read_process(os.getpid(), *addresses, 7) == 7 and target == source


def system() -> str:
    """Kernel, processor and interpreter in a line."""
    return (f"{platform.system()} {platform.release()}, {platform.machine()}, "
            f"Python {platform.python_version()}")
