"""Cells of the C programs: Debian's in the guest against softhca's commands, over the programs' exchange."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from interop_link import CellError, canonical, expect
from interop_matrix import SETTINGS, SHORT_SETTINGS, Case, cell

CONTROL_PORT = 18515
PROGRAM_S = 300.0
PATIENT = "18"
"""Acknowledgement timeout of perftest's queue pairs, 1.07 s: a guest without KVM may answer slowly."""
LISTENS = f"busybox grep -qi ':{CONTROL_PORT:04X} 0*:0000 0A' /proc/net/tcp"


def pingpong(case: Case, service: str, iterations: int = 50, queue_pairs: int = 0) -> None:
    """``ibv_*_pingpong`` with its check of the data on both ends; ``queue_pairs``: so many share receives."""
    mtu = str(case.setting.mtu_bytes)
    common = ["-n", str(iterations), "-c"]
    if service != "ud":
        common += ["-m", mtu]
    if queue_pairs:
        common += ["-q", str(queue_pairs)]
    theirs = [f"ibv_{'srq' if queue_pairs else service}_pingpong", *_device(case, "-g"), *common]
    ours = ["pingpong", "--service", service, "--json", *common, *(["--srq"] if queue_pairs else [])]
    answer = together(case, theirs, ours)
    expect("exchanges, data", (answer.get("iterations"), answer.get("valid")), (iterations, True))


def perftest(
    case: Case, test: str, size: int, iterations: int, service: str = "RC", more: Sequence[str] = ()
) -> dict[str, Any]:
    """One of perftest's programs; both ends are given ``more``.  What ours printed."""
    numbers = ["-n", str(iterations), "-u", PATIENT, *more]
    if size and not test.startswith("atomic"):
        numbers += ["-s", str(size)]
    mtu = ["-m", str(case.setting.mtu_bytes)] if service != "UD" else []
    theirs = [f"ib_{test.replace('-', '_')}", *_device(case, "-x"), *numbers, "-F", *mtu, "-c", service]
    ours = ["perf", test, "--qp-type", service, "--json", *numbers]
    answer = together(case, theirs, ours)
    if case.ours_asks and size:
        queue_pairs = int(more[more.index("-q") + 1]) if "-q" in more else 1
        expect("operations", answer.get("iterations"), iterations * queue_pairs)
    return answer


def _device(case: Case, option: str) -> list[str]:
    """The guest's device and the GID index of the setting's address."""
    index = case.sides.kernel.gids[canonical(case.sides.kernel_addresses[case.setting.version])]
    return ["-d", "rxe0", option, str(index)]


def together(case: Case, theirs: Sequence[str], ours: Sequence[str]) -> dict[str, Any]:
    """Run both ends, the server first; what ours printed.  The exchange itself runs over IPv4."""
    sides = case.sides
    if case.ours_asks:
        server = sides.guest.start(*theirs)
        deadline_s = time.monotonic() + PROGRAM_S
        while sides.guest.run("sh", "-c", LISTENS, check=False).status:  # bounded by the deadline
            if server.ended():
                raise CellError(f"{' '.join(theirs)}: {server.wait()}")
            if time.monotonic() > deadline_s:
                server.kill()
                raise CellError(f"{' '.join(theirs)} does not listen")
        try:
            with sides.start_ours(case.setting.version, [*ours, sides.kernel_addresses[4]]) as process:
                answer = _ended(process)
            guest = server.wait(PROGRAM_S)
        except BaseException:
            if not server.ended():
                server.kill()  # else its port is taken for whatever comes next
            raise
    else:
        with sides.start_ours(case.setting.version, [*ours, "--listen"]) as process:
            try:
                sides.wait_listening(CONTROL_PORT)
                guest = sides.guest.start(*theirs, sides.our_addresses[4]).wait(PROGRAM_S)
            except BaseException:
                process.kill()  # else the end of this block waits for it
                raise
            answer = _ended(process)
    if guest.status:
        raise CellError(f"{' '.join(theirs)}: status {guest.status}: {(guest.err or guest.out)[-500:]}")
    return answer


def _ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What our command printed; killed when it does not end."""
    try:
        out, err = process.communicate(timeout=PROGRAM_S)
    finally:
        process.kill()
    if process.returncode:
        raise CellError(f"softhca: status {process.returncode}: {err.strip()[-500:]}")
    return dict(json.loads(out)) if out.strip() else {}


@cell("ibv_rc_pingpong", network=True)
def rc_pingpong(case: Case) -> None:
    """RC."""
    pingpong(case, "rc")


@cell("ibv_uc_pingpong", network=True, core=False)
def uc_pingpong(case: Case) -> None:
    """UC."""
    pingpong(case, "uc")


@cell("ibv_ud_pingpong", network=True, core=False)
def ud_pingpong(case: Case) -> None:
    """UD."""
    pingpong(case, "ud")


@cell("ib_write_bw", network=True)
def write_bw(case: Case) -> None:
    """RDMA WRITE of 64 KiB."""
    perftest(case, "write-bw", 65536, 40)


@cell("ib_read_bw", network=True, core=False)
def read_bw(case: Case) -> None:
    """RDMA READ of an odd size."""
    perftest(case, "read-bw", 9999, 40)


@cell("ib_atomic_bw", network=True, core=False)
def atomic_bw(case: Case) -> None:
    """Fetch-and-add."""
    perftest(case, "atomic-bw", 8, 100)


@cell("ib_send_lat", network=True, core=False)
def send_lat(case: Case) -> None:
    """SEND to and fro."""
    perftest(case, "send-lat", 300, 100)


@cell("ib_send_bw", network=True, core=False)
def send_bw(case: Case) -> None:
    """SEND in one direction."""
    perftest(case, "send-bw", 4097, 100)


@cell("ib_send_lat -c UD", network=True, core=False)
def send_lat_ud(case: Case) -> None:
    """Datagrams to and fro."""
    perftest(case, "send-lat", 512, 100, "UD")


@cell("ib_write_lat", network=True, core=False)
def write_lat(case: Case) -> None:
    """RDMA WRITE to and fro, found by its last byte."""
    perftest(case, "write-lat", 64, 100)


@cell("ib_read_lat", network=True, core=False)
def read_lat(case: Case) -> None:
    """RDMA READ, one at a time."""
    perftest(case, "read-lat", 64, 100)


@cell("ib_atomic_lat", network=True, core=False)
def atomic_lat(case: Case) -> None:
    """Fetch-and-add, one at a time."""
    perftest(case, "atomic-lat", 8, 100)


@cell("ibv_srq_pingpong -q 1", network=True, core=False)
def srq_pingpong(case: Case) -> None:
    """One queue pair, whose program names 256."""
    pingpong(case, "rc", queue_pairs=1)


@cell("ibv_srq_pingpong", network=True, core=False, settings=SHORT_SETTINGS)
def srq_pingpong_of_16(case: Case) -> None:
    """As many queue pairs as the program has unless it is told."""
    pingpong(case, "rc", 200, queue_pairs=16)


def both_ways(case: Case, test: str, size: int, iterations: int, service: str = "RC") -> None:
    """In both directions at once: both ends have figures of the other one's, whoever listens."""
    answer = perftest(case, test, size, iterations, service, ["-b"])
    if case.ours_asks:
        expect("the peer has told its rate", answer["peer_message_rate_per_s"] > 0, True)


@cell("ib_write_bw -b", network=True, core=False, settings=SHORT_SETTINGS)
def write_bw_both(case: Case) -> None:
    """RDMA WRITE both ways."""
    both_ways(case, "write-bw", 65536, 40)


@cell("ib_read_bw -b", network=True, core=False, settings=SHORT_SETTINGS)
def read_bw_both(case: Case) -> None:
    """RDMA READ both ways."""
    both_ways(case, "read-bw", 9999, 40)


@cell("ib_atomic_bw -b", network=True, core=False, settings=SHORT_SETTINGS)
def atomic_bw_both(case: Case) -> None:
    """Fetch-and-add both ways."""
    both_ways(case, "atomic-bw", 8, 100)


@cell("ib_send_bw -b", network=True, core=False)
def send_bw_both(case: Case) -> None:
    """SEND both ways."""
    both_ways(case, "send-bw", 4097, 100)


@cell("ib_send_bw -b -c UD", network=True, core=False, settings=SHORT_SETTINGS)
def send_bw_both_ud(case: Case) -> None:
    """Datagrams both ways, so few that every one of them has a receive."""
    both_ways(case, "send-bw", 512, 100, "UD")


@cell("ib_send_bw -a", network=True, core=False, settings=SHORT_SETTINGS)
def send_bw_all(case: Case) -> None:
    """All sizes, behind each other."""
    answer = perftest(case, "send-bw", 0, 5, more=["-a"])
    if case.ours_asks:
        sizes = [each["size_bytes"] for each in answer["sizes"]]
        expect("sizes", sizes, [2 << power for power in range(23)])


@cell("ib_send_bw -a -b", network=True, core=False, settings=SHORT_SETTINGS[:1])
def send_bw_all_both(case: Case) -> None:
    """All sizes, both ways."""
    perftest(case, "send-bw", 0, 5, more=["-a", "-b"])


@cell("ib_write_bw -a", network=True, core=False, settings=SHORT_SETTINGS[:1])
def write_bw_all(case: Case) -> None:
    """All sizes of RDMA WRITE."""
    perftest(case, "write-bw", 0, 5, more=["-a"])


@cell("ib_send_lat -a", network=True, core=False, settings=SHORT_SETTINGS[:1])
def send_lat_all(case: Case) -> None:
    """All sizes to and fro."""
    perftest(case, "send-lat", 0, 5, more=["-a"])


@cell("ib_write_lat -a", network=True, core=False, settings=SHORT_SETTINGS[:1])
def write_lat_all(case: Case) -> None:
    """All sizes of RDMA WRITE to and fro."""
    perftest(case, "write-lat", 0, 5, more=["-a"])


@cell("ib_send_bw --reversed", network=True, core=False, settings=SHORT_SETTINGS)
def send_bw_reversed(case: Case) -> None:
    """The server sends: the client counts what has come."""
    perftest(case, "send-bw", 4097, 100, more=["--reversed"])


@cell("ib_write_bw --reversed", network=True, core=False, settings=SHORT_SETTINGS)
def write_bw_reversed(case: Case) -> None:
    """The server writes: the client has its report."""
    perftest(case, "write-bw", 65536, 40, more=["--reversed"])


@cell("ib_write_bw -q 8", network=True, core=False, settings=SETTINGS[:2])
def write_bw_many(case: Case) -> None:
    """Several queue pairs that fill what they share."""
    perftest(case, "write-bw", 1_000_000, 10, more=["-q", "8"])
