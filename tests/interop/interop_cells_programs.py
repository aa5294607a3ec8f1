"""Cells of the C programs: Debian's in the guest against softhca's commands, over the programs' exchange."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from interop_link import CellError, canonical, expect
from interop_matrix import Case, cell

CONTROL_PORT = 18515
PROGRAM_S = 120.0
LISTENS = f"busybox grep -qi ':{CONTROL_PORT:04X} 0*:0000 0A' /proc/net/tcp"


def pingpong(case: Case, service: str, iterations: int = 50) -> None:
    """``ibv_*_pingpong`` with its check of the data on both ends."""
    mtu = str(case.setting.mtu_bytes)
    common = ["-n", str(iterations), "-c"]
    if service != "ud":
        common += ["-m", mtu]
    theirs = [f"ibv_{service}_pingpong", *_device(case, "-g"), *common]
    ours = ["pingpong", "--service", service, "--json", *common]
    answer = together(case, theirs, ours)
    expect("exchanges, data", (answer.get("iterations"), answer.get("valid")), (iterations, True))


def perftest(case: Case, test: str, size: int, iterations: int, service: str = "RC") -> None:
    """One of perftest's programs."""
    numbers = ["-n", str(iterations)]
    if not test.startswith("atomic"):
        numbers += ["-s", str(size)]
    mtu = ["-m", str(case.setting.mtu_bytes)] if service != "UD" else []
    theirs = [f"ib_{test.replace('-', '_')}", *_device(case, "-x"), *numbers, "-F", *mtu, "-c", service]
    ours = ["perf", test, "--qp-type", service, "--json", *numbers]
    answer = together(case, theirs, ours)
    if case.ours_asks:
        expect("operations", answer.get("iterations"), iterations)


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
        while sides.guest.run("sh", "-c", LISTENS, check=False).status:
            if server.ended():
                raise CellError(f"{' '.join(theirs)}: {server.wait()}")
            if time.monotonic() > deadline_s:
                server.kill()
                raise CellError(f"{' '.join(theirs)} does not listen")
        with sides.start_ours(case.setting.version, [*ours, sides.kernel_addresses[4]]) as process:
            answer = _ended(process)
        guest = server.wait(PROGRAM_S)
    else:
        with sides.start_ours(case.setting.version, [*ours, "--listen"]) as process:
            sides.wait_listening(CONTROL_PORT)
            guest = sides.guest.start(*theirs, sides.our_addresses[4]).wait(PROGRAM_S)
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


@cell("ibv_uc_pingpong", network=True)
def uc_pingpong(case: Case) -> None:
    """UC."""
    pingpong(case, "uc")


@cell("ibv_ud_pingpong", network=True)
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
