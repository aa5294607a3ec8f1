"""What an open device costs while nothing happens: share of one processor, adapter included.

``python3 benchmarks/idle.py [--seconds T]`` prints a markdown table.  The program opens a device, with a
queue of each kind, and blocks in the read of a pipe for T seconds; counted are the processor time of this
process, all its threads, and of the adapter process where there is one, and how often it woke up.
"""

import argparse
import os
import resource
import select
import sys
import time

from bench.tables import markdown

from softhca.driver import registry
from softhca.runtime import devices

ADAPTERS = ("embedded", "process")
SETTLING_S = 0.5
RC = 2  # ibv_qp_type


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long it idles (default %(default)s)")
    args = parser.parse_args()
    rows = []
    for adapter in ADAPTERS:
        share, wakeups = idle_cost(adapter, args.seconds)
        rows.append([adapter, f"{share:.3%}", f"{wakeups}"])
    sys.stdout.write(markdown(["adapter", "share of one processor", "wake-ups"], rows) + "\n")


def idle_cost(adapter, seconds):
    """Processor time over elapsed time, and how often something woke up to serve the device."""
    registry.names()
    devices.add("idle=udp:*", adapter)
    driver = registry.open_device("idle")
    pd = driver.alloc_pd()
    cq = driver.create_cq(64, "channel")
    driver.create_qp(pd, RC, cq, cq, None, 16, 16, 1, 1, 0, True)
    reader, writer = os.pipe()
    pid = devices.find("idle").process.pid if adapter == "process" else 0
    select.select([reader], [], [], SETTLING_S)
    woken = wakeups_of(adapter)
    begin, used = time.monotonic(), processor_time_s(pid)
    select.select([reader], [], [], seconds)
    share = (processor_time_s(pid) - used) / (time.monotonic() - begin)
    # to look wakes an adapter in a process of its own, once
    woken = wakeups_of(adapter) - woken - (adapter == "process")
    os.close(reader)
    os.close(writer)
    driver.close()
    devices.remove("idle")
    return share, woken


def wakeups_of(adapter):
    """How often something has woken up to serve the device."""
    device = devices.find("idle")
    if adapter == "embedded":
        return device.engine.progress.wakeups
    return device._channels[0].resources()["sleeps"]


def processor_time_s(pid):
    """User and system time of this process and, unless 0, of process ``pid``."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    if pid:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


if __name__ == "__main__":
    main()
