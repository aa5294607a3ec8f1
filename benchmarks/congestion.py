"""Many adapters write to one over an Ethernet switch in virtual time: shares, losses and queues, with and
without DCQCN and PFC; and a picture of rates over time.

    python benchmarks/congestion.py                           # the table of an incast of 32 to 1, as Markdown
    python benchmarks/congestion.py --svg docs/congestion.svg # two flows, a third joins and leaves

Everything follows from the seed: the figures are of virtual time, and the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from softhca.fabric.ethernet.settings import Marking, Pausing, SwitchSettings
from softhca.simulation.contest import Contest, ContestSettings, jain
from softhca.transport.congestion import DcqcnSettings

MBPS = 40_000
QUEUE_BYTES = 1_000_000
MESSAGE_BYTES = 65_536
SAMPLE_US = 50
PHASES_US = ((1, 1_000), (2, 7_000), (3, 8_000), (-3, 6_000))
"""Who starts (−: stops), and how long until the next."""


def switch(senders: int, pfc: bool, marks: bool) -> SwitchSettings:
    """A switch of 1 MB; with PFC no sender has more than its share of half of that in it."""
    share = QUEUE_BYTES // (2 * senders)
    return SwitchSettings(
        2 * QUEUE_BYTES, 2 * QUEUE_BYTES if pfc else QUEUE_BYTES, Marking() if marks else None,
        Pausing(share, share // 2) if pfc else None,
    )  # fmt: skip


def incast(senders: int, dcqcn: bool, pfc: bool, time_us: int, seed: int) -> dict[str, Any]:
    """Figures of the second half of twice the time, and of losses in the first."""
    numbers = DcqcnSettings(line_mbps=MBPS) if dcqcn else None
    made = Contest(ContestSettings(senders, switch(senders, pfc, dcqcn), numbers, MBPS, MESSAGE_BYTES, 2,
                                   seed=seed))  # fmt: skip
    begin = time.perf_counter()
    for sender in range(1, senders + 1):
        made.start(sender)
    made.run(time_us)
    before = made.counters()
    shares = made.run(time_us)
    after = made.counters()
    made.close()
    found: dict[str, Any] = {"dcqcn": dcqcn, "pfc": pfc, "goodput": made.load(shares, time_us)}
    found |= {"jain": jain(shares), "least_share": min(shares) * senders / max(sum(shares), 1)}
    found |= {"lost_first": before["frames_lost"], "errors": made.errors}
    for name in ("frames_lost", "timeouts", "cnps_sent", "pauses"):
        found[name] = after[name] - before[name]
    found["queue_bytes"] = after["most_queued_bytes"]
    found["seconds"] = round(time.perf_counter() - begin, 1)
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    heads = ("DCQCN", "PFC", "goodput", "Jain", "least share", "lost at the start", "lost later",
             "time-outs later", "CNPs", "pauses")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for row in rows:
        lines.append(
            f"| {'yes' if row['dcqcn'] else 'no'} | {'yes' if row['pfc'] else 'no'} | {row['goodput']:.0%} | "
            f"{row['jain']:.3f} | {row['least_share']:.2f} | {row['lost_first']} | {row['frames_lost']} | "
            f"{row['timeouts']} | {row['cnps_sent']} | {row['pauses']} |"
        )
    return "\n".join(lines)


def three_flows(seed: int, mbps: int = 10_000) -> dict[str, Any]:
    """Two flows share a link, a third joins and leaves: rates by sender and the queue, over time; Jain's
    index of each phase's second half."""
    numbers = DcqcnSettings(line_mbps=mbps, gain=1 / 64, increase_bytes=1 << 20)
    settings = SwitchSettings(1 << 21, 1 << 21, Marking(20_000, 200_000, 0.1))
    made = Contest(ContestSettings(3, settings, numbers, mbps, 32_768, 2, seed=seed))
    times: list[float] = []
    rates: list[list[float]] = [[], [], []]
    queue: list[float] = []
    phases = []
    active: list[int] = []
    now_us = 0
    for who, length_us in PHASES_US:
        if who > 0:
            active.append(who)
            made.start(who)
        else:
            active.remove(-who)
            made.stop(-who)
        late = [0, 0, 0]
        for step in range(length_us // SAMPLE_US):
            done = made.run(SAMPLE_US)
            now_us += SAMPLE_US
            times.append(now_us / 1_000)
            for at, allowed in enumerate(made.rates_mbps()):
                rates[at].append(allowed / 1_000 if at + 1 in active else 0.0)
            queue.append(made.ethernet.fabric.toward(4).queued[0] / 1_000)
            if step * SAMPLE_US >= length_us // 2:
                late = [a + b for a, b in zip(late, done, strict=True)]
        shares = [late[at - 1] for at in active]
        phases.append({"flows": len(active), "jain": jain(shares),
                       "goodput": made.load(shares, length_us // 2)})  # fmt: skip
    counters = made.counters()
    made.close()
    return {"times_ms": times, "rates_gbps": rates, "queue_kb": queue, "phases": phases, "counters": counters,
            "mbps": mbps}  # fmt: skip


def draw(found: dict[str, Any], path: Path) -> None:
    """The picture, by matplotlib (extra ``plot``)."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "softhca"
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 5), height_ratios=(3, 1))
    for at, rate in enumerate(found["rates_gbps"], 1):
        shown = [value if value else float("nan") for value in rate]
        above.plot(found["times_ms"], shown, label=f"flow {at}", linewidth=1.4)
    above.axhline(found["mbps"] / 2_000, color="0.7", linewidth=0.7)
    above.axhline(found["mbps"] / 3_000, color="0.7", linewidth=0.7)
    above.set_ylabel("rate by DCQCN, Gb/s")
    above.set_ylim(0, found["mbps"] / 1_000 * 1.05)
    above.legend(loc="upper right")
    above.set_title("Two flows share a link of 10 Gb/s, a third joins and leaves")
    below.plot(found["times_ms"], found["queue_kb"], color="0.3", linewidth=0.8)
    below.set_ylabel("queue, kB")
    below.set_xlabel("time, ms")
    below.set_ylim(0, None)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Print the table, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--senders", type=int, default=32)
    parser.add_argument("--time", type=int, default=10_000, metavar="US", help="of each half (10,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.svg:
        found = three_flows(args.seed)
        draw(found, args.svg)
        print(json.dumps({"phases": found["phases"], "counters": found["counters"]}, indent=2))
        return 0
    rows = []
    for dcqcn, pfc in ((False, False), (True, False), (False, True), (True, True)):
        rows.append(incast(args.senders, dcqcn, pfc, args.time, args.seed))
        print(f"{rows[-1]}", file=sys.stderr, flush=True)
    print(json.dumps(rows, indent=2) if args.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
