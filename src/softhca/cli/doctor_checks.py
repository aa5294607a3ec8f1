"""What the machine's facts mean for softhca: for each what is found, what it costs, and how to mend it.

A check takes `Facts` and gives findings; it asks nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from softhca.cli.doctor_facts import UNLIMITED, Facts, Interface
from softhca.links.interfaces import PATH_MTUS_BYTES, active_mtu
from softhca.links.sockets import BUFFER_BYTES, DESCRIPTORS_A_SENDER, MOST_SENDERS
from softhca.runtime.same_host_limits import LEAST_DESCRIPTORS

OK = "ok"
SLOW = "slow"
LIMITED = "limited"
WRONG = "wrong"
UNKNOWN = "unknown"
VERDICTS = (OK, SLOW, LIMITED, WRONG, UNKNOWN)
"""Right as it is; works and costs speed; works, and something is left out; does not work; cannot be seen by
who asks."""

CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "")
"""Clocks that are read without a system call, and none that is told."""
LEAST_MAPPINGS = 65_530
WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Finding:
    """One line of the report.  ``mend`` is empty where there is nothing to mend."""

    name: str
    verdict: str
    found: str
    costs: str = ""
    mend: str = ""

    def document(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        return asdict(self)


def modules(facts: Facts) -> Iterator[Finding]:
    """Compiled modules."""
    found = f"{facts.compiled} of {facts.compilable} are compiled"
    if facts.compiled == facts.compilable:
        yield Finding("modules", OK, found)
        return
    yield Finding(
        "modules", SLOW, found, "interpreted modules take many times as long",
        "install gcc and python3-dev, then in the folder of its source: pip install --force-reinstall .",
    )  # fmt: skip


def processors(facts: Facts) -> Iterator[Finding]:
    """Processors, and who else wants them."""
    found = f"{facts.processors:g}"
    if facts.processors < 2:
        yield Finding("processors", SLOW, found, "both ends of a test on this machine share one",
                      "give the machine, or the container, two processors")
    else:
        yield Finding("processors", OK, found)
    if facts.load > facts.processors / 2:
        yield Finding("load", SLOW, f"{facts.load:.1f} on {facts.processors:g} processors",
                      "whoever polls waits for its turn: latencies are many times as long",
                      "measure when the machine has nothing else to do")
    else:
        yield Finding("load", OK, f"{facts.load:.1f} on {facts.processors:g} processors")


def clock(facts: Facts) -> Iterator[Finding]:
    """The clock that each round of an engine reads."""
    if facts.clock in CLOCKS:
        yield Finding("clock", OK, facts.clock or "the kernel does not tell")
        return
    yield Finding(
        "clock", SLOW, facts.clock, "each look at the clock is a system call",
        "as root: echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, where the "
        "processor's counter is steady",
    )  # fmt: skip


def buffers(facts: Facts) -> Iterator[Finding]:
    """Socket buffers: what was asked for is half of what the kernel counts."""
    for way, got, name in (("receive", facts.receive_buffer_bytes, "rmem_max"),
                           ("send", facts.send_buffer_bytes, "wmem_max")):
        found = f"{got // 2:,} bytes a socket"
        if got >= 2 * BUFFER_BYTES:
            yield Finding(f"{way} buffer", OK, found)
            continue
        costs = ("what many peers send at once does not fit, and is sent again" if way == "receive"
                 else "long chains wait for room")
        mend = f"as root: sysctl -w net.core.{name}={BUFFER_BYTES}"
        yield Finding(f"{way} buffer", SLOW, found, costs, mend)
    if facts.dropped_datagrams:
        yield Finding(
            "dropped datagrams", SLOW,
            f"{facts.dropped_datagrams:,} of all programs, since this network came up",
            "each was sent again after a time-out, if softhca's", "raise net.core.rmem_max",
        )  # fmt: skip
    else:
        yield Finding("dropped datagrams", OK, "none for want of room in a socket")


def bursts(facts: Facts) -> Iterator[Finding]:
    """GSO and GRO."""
    if facts.segments and facts.merges:
        yield Finding("GSO and GRO", OK, "a burst of datagrams is one system call at either end")
        return
    found = "bursts are sent, and arrive as single datagrams" if facts.segments else "bursts cannot be sent"
    yield Finding("GSO and GRO", SLOW, found, "a system call for each datagram instead of one for dozens",
                  "Linux 5.0 has both (UDP_SEGMENT, UDP_GRO); a sandbox's own network may not")


def mtu(facts: Facts) -> Iterator[Finding]:
    """MTU and bursts of each interface that leads elsewhere."""
    if not facts.interfaces:
        yield Finding("MTU", OK, "there is no interface but the loopback")
    for interface in facts.interfaces:
        yield from _interface(interface)


def _interface(interface: Interface) -> Iterator[Finding]:
    name = f"MTU of {interface.name}"
    try:
        path_bytes = active_mtu(interface.mtu_bytes)
    except ValueError:
        yield Finding(name, WRONG, f"{interface.mtu_bytes} bytes", "no packet of RoCE fits",
                      f"as root: ip link set {interface.name} mtu 1500")
        return
    found = f"{interface.mtu_bytes} bytes, so the path MTU is {path_bytes}"
    if path_bytes == PATH_MTUS_BYTES[0]:
        yield Finding(name, OK, found)
    else:
        yield Finding(name, SLOW, found, f"{PATH_MTUS_BYTES[0] // path_bytes} packets where one would do",
                      f"as root, where all on the way bear it: ip link set {interface.name} mtu 4200")
    name = f"bursts by {interface.name}"
    if interface.bursts is None:
        yield Finding(name, UNKNOWN, "the interface does not tell whether it cuts them itself")
    elif not interface.bursts:
        yield Finding(name, OK, "the kernel cuts them")
    elif interface.driver == "veth":
        yield Finding(name, OK, "they pass whole")
    else:
        yield Finding(
            name, SLOW, f"the card ({interface.driver or 'no driver told'}) cuts them",
            "over IPv4 single datagrams go out, as the ICRC covers identifications that the card counts",
            "IPv6 addresses, or the device's option segmenting=PEER where the card counts them up from 0",
        )  # fmt: skip


def port(facts: Facts) -> Iterator[Finding]:
    """Who has UDP port 4791, and whether the devices named can have it."""
    wide = [address for address in facts.port_holders if address in WILDCARDS]
    if wide:
        yield Finding("UDP port 4791", WRONG, f"taken on all addresses ({' '.join(wide)})",
                      "no adapter can be opened",
                      "end the program that has it (ss -lunp), or the kernel's SoftRoCE: rmmod rdma_rxe")
    else:
        taken = ", ".join(facts.port_holders)
        yield Finding("UDP port 4791", OK, f"taken on {taken}" if taken else "free on all addresses")
    for device, hindrance in facts.devices.items():
        if hindrance:
            yield Finding(f"device {device}", WRONG, hindrance, "it cannot be opened",
                          "change SOFTHCA_DEVICES, or end the program that has the address (ss -lunp)")
        else:
            yield Finding(f"device {device}", OK, "it can be opened")


def firewall(facts: Facts) -> Iterator[Finding]:
    """Filters between here and peers."""
    if facts.loopback_passes:
        yield Finding("packets here", OK, "UDP port 4791 passes the loopback")
    else:
        yield Finding("packets here", WRONG, "a datagram to UDP port 4791 of the loopback does not arrive",
                      "adapters on this machine do not reach each other by packets",
                      "let UDP port 4791 pass (nft list ruleset, as root)")
    opening = {
        "ufw": "as root: ufw allow 4791/udp",
        "firewalld": "as root: firewall-cmd --add-port=4791/udp",
    }.get(facts.firewall, "where it does not: let UDP port 4791 pass, in and out, on both machines")
    yield Finding(
        "packets elsewhere", UNKNOWN,
        f"{facts.firewall} is on" if facts.firewall else _rules_seen(facts),
        "without UDP port 4791 no other machine is reached",
        f"try it: softhca ping --listen there, softhca ping HOST here; {opening}",
    )  # fmt: skip


def _rules_seen(facts: Facts) -> str:
    """What is known of a firewall's rules."""
    if not facts.may_see_rules:
        return "only root sees a firewall's rules"
    if not facts.rules:
        return "neither nft nor iptables is installed to show a firewall's rules"
    counts = {name: "does not tell its rules" if count is None else f"lists {count:,} rules"
              for name, count in facts.rules.items()}  # fmt: skip
    return ", ".join(f"{name} {said}" for name, said in counts.items())


def same_host(facts: Facts) -> Iterator[Finding]:
    """Shared memory between adapters of one user on this host."""
    if facts.no_same_host:
        mend = next((mend for word, mend in _SAME_HOST_MENDS if word in facts.no_same_host), "")
        costs = "on one host, too, RDMA goes by packets"
        yield Finding("shared memory", LIMITED, facts.no_same_host, costs, mend)
    else:
        yield Finding("shared memory", OK, "adapters of one user on this host need no packets for RDMA")
    costs = "memory that programs bring goes by packets; what the library allocates is shared all the same"
    if not facts.reads_memory:
        yield Finding("ptrace rights", SLOW, "process_vm_readv is refused", costs,
                      "let the sandbox allow process_vm_readv, or take MR(pd, length, access)")
    elif facts.ptrace_scope and not facts.may_trace:
        yield Finding("ptrace rights", SLOW, f"yama's ptrace_scope is {facts.ptrace_scope}", costs,
                      "take MR(pd, length, access); or as root: sysctl -w kernel.yama.ptrace_scope=0")
    else:
        yield Finding("ptrace rights", OK, "processes of one user reach each other's memory")


_SAME_HOST_MENDS = (
    ("libatomic", "install libatomic1, or the compiled modules"),
    ("address space", "ulimit -v unlimited"),
    ("few descriptors", "ulimit -n 4096"),
    ("another user", "start the program as the user itself, or say same_host=1"),
)


def limits(facts: Facts) -> Iterator[Finding]:
    """Limits of a process."""
    enough = DESCRIPTORS_A_SENDER * MOST_SENDERS
    found = "unlimited" if facts.descriptors == UNLIMITED else f"{facts.descriptors:,}"
    mend = (f"ulimit -n {enough}" if facts.most_descriptors >= enough
            else "raise nofile in /etc/security/limits.conf")
    if facts.descriptors < LEAST_DESCRIPTORS:
        yield Finding("descriptors", LIMITED, found, "no shared memory on one host", mend)
    elif facts.descriptors < enough:
        yield Finding("descriptors", SLOW, found,
                      f"beyond {facts.descriptors // DESCRIPTORS_A_SENDER} connections to other machines "
                      f"share source ports, and so paths through the network", mend)
    else:
        yield Finding("descriptors", OK, found)
    if facts.address_space != UNLIMITED:
        yield Finding("address space", LIMITED, f"{facts.address_space:,} bytes",
                      "no shared memory on one host", "ulimit -v unlimited")
    elif facts.overcommit == 2:
        yield Finding("address space", LIMITED, "the kernel never overcommits (vm.overcommit_memory=2)",
                      "an adapter reserves 32 GiB that it does not use, and may be refused",
                      "as root: sysctl -w vm.overcommit_memory=0")
    else:
        yield Finding("address space", OK, "unlimited")
    if facts.mappings < LEAST_MAPPINGS:
        yield Finding("mappings", LIMITED, f"{facts.mappings:,}", "pageable memory cannot be spread as far",
                      f"as root: sysctl -w vm.max_map_count={LEAST_MAPPINGS}")
    else:
        yield Finding("mappings", OK, f"{facts.mappings:,}")


def huge_pages(facts: Facts) -> Iterator[Finding]:
    """Huge pages for the program's memory and for shared memory."""
    costs = "copies of a megabyte and more look more pages up"
    for name, chosen, refusals, mend in (
        ("huge pages", facts.huge_pages, ("never",),
         "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        ("shared huge pages", facts.shared_huge_pages, ("never", "deny", "advise"),
         "as root: echo within_size > /sys/kernel/mm/transparent_hugepage/shmem_enabled"),
    ):  # fmt: skip
        if chosen in refusals or not chosen:
            yield Finding(name, SLOW, chosen or "the kernel has none", costs, mend if chosen else "")
        else:
            yield Finding(name, OK, chosen)


CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    modules, processors, clock, buffers, bursts, mtu, port, firewall, same_host, limits, huge_pages,
)  # fmt: skip


def findings(facts: Facts) -> list[Finding]:
    """All that there is to say, in the order in which it is read."""
    return [finding for check in CHECKS for finding in check(facts)]
