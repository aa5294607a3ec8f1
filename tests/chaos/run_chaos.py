"""Live processes under faults, with an oracle on every byte: ``make chaos``.

``python run_chaos.py [--seconds N] [--seed N] [--mode MODE …] [--kind KIND …] [--storm] [--json FILE]``;
``--replay FILE`` runs one round again, as a failure printed it.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # whose limits are by the machine's speed

from chaos_plan import KINDS, MODES, ROUNDS_A_SESSION, STORM_ROUNDS, TRAFFIC, round_of, storm_round
from chaos_processes import Broken, become_reaper, isolate
from chaos_script import mixed
from chaos_session import TOLD_STEP_MS, Figures, Session

FIRST_BLOCK, BLOCKS = 150, 100


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600, help="how long (default 600)")
    parser.add_argument("--seed", type=int, default=None, help="default: any; it is printed")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--kind", nargs="+", choices=list(KINDS), default=[], help="only these rounds")
    parser.add_argument(
        "--traffic", nargs="+", choices=list(TRAFFIC), default=[], help="only such connections"
    )
    parser.add_argument("--rounds", type=int, default=0, help="end after so many (default: by time)")
    parser.add_argument("--storm", action="store_true", help="connects, kills and stops, as many as can be")
    parser.add_argument("--victims", type=int, default=6, help="of a storm's round")
    parser.add_argument("--connections", type=int, default=8, help="of each victim of a storm's round")
    parser.add_argument("--few", action="store_true", help="few connections a victim, for slow machines")
    parser.add_argument("--json", default="", metavar="FILE", help="keep the report")
    parser.add_argument(
        "--failed", default="build/chaos-failed.json", metavar="FILE", help="keep a failed round"
    )
    parser.add_argument("--replay", default="", metavar="FILE", help="run a failed round again")
    parser.add_argument("--keep-going", action="store_true", help="go on behind a failure")
    return parser.parse_args(arguments)


class Campaign:
    """Sessions in turn, until the time is over or a promise is broken."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.seed = secrets.randbits(32) if options.seed is None else options.seed
        self.figures: dict[str, Figures] = {}
        self.failures: list[dict[str, Any]] = []
        self.begin = time.monotonic()
        self.played = 0
        self.modes = [
            mode
            for mode in options.mode
            if not options.kind
            or any(not KINDS[kind][1] or mode in KINDS[kind][1].split() for kind in options.kind)
        ]

    def run(self) -> int:
        """All of it; how many rounds failed."""
        print(f"chaos: seed {self.seed}, {self.options.seconds:.0f} s", flush=True)
        number = 0
        while not self._over():
            mode = self.modes[number % len(self.modes)]
            self._session(mode, mixed(self.seed ^ number << 8) >> 16, number)
            number += 1
        return len(self.failures)

    def _over(self) -> bool:
        rounds = self.options.rounds
        return (
            (bool(self.failures) and not self.options.keep_going)
            or (bool(rounds) and self.played >= rounds)
            or time.monotonic() - self.begin >= self.options.seconds
        )

    def _session(self, mode: str, seed: int, number: int) -> None:
        rounds = STORM_ROUNDS if self.options.storm else ROUNDS_A_SESSION
        if self.options.rounds:
            rounds = min(rounds, self.options.rounds - self.played)
        plans = [self._plan(seed, mode, i) for i in range(rounds)]
        figures = play(mode, seed, plans, number, self._over, self._failed)
        self.played += figures.rounds
        add(self.figures.setdefault(mode, Figures()), figures)

    def _plan(self, seed: int, mode: str, i: int) -> dict[str, Any]:
        if self.options.storm:
            return storm_round(seed, i, self.options.victims, self.options.connections)
        plan = round_of(seed, mode, i, tuple(self.options.kind), tuple(self.options.traffic))
        if self.options.few:
            plan.update(victims=1, connections=min(plan["connections"], 4))
        return plan

    def _failed(self, mode: str, seed: int, plan: dict[str, Any], word: str) -> None:
        failure = {"mode": mode, "seed": seed, "plan": plan, "word": word}
        self.failures.append(failure)
        path = Path(self.options.failed)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(failure, indent=1))
        print(
            f"FAILED: {word}\n  mode {mode}, session's seed {seed}, round {json.dumps(plan)}\n"
            f"  run it again: python tests/chaos/run_chaos.py --replay {path}",
            flush=True,
        )

    def report(self) -> dict[str, Any]:
        """What there is to tell, as data."""
        return {
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.begin, 1),
            "modes": {mode: asdict(figures) for mode, figures in self.figures.items()},
            "failures": self.failures,
        }


def play(mode: str, seed: int, plans: list[dict[str, Any]], number: int, over: Any, failed: Any) -> Figures:
    """One session; its figures."""
    block, claim = _claim_block(number)
    session = None
    plan: dict[str, Any] = {}
    broken = False
    temporary = tempfile.mkdtemp(prefix="chaos-")
    os.environ["TMPDIR"] = temporary
    shared = _shared_files()
    try:
        session = Session(mode, seed, block, bool(plans[0].get("gentle")))
        for plan in plans:
            session.play(plan)
            if over():
                break
    except Broken as error:
        broken = True
        failed(mode, seed, plan, str(error))
    except Exception:
        broken = True
        failed(mode, seed, plan, "the tool itself: " + traceback.format_exc())
    try:
        if session is not None:
            session.close(broken)
        if not broken and (left := os.listdir(temporary)):
            raise Broken(f"files are left in the temporary directory: {left}")
        if not broken and (left := sorted(_shared_files() - shared)):
            raise Broken(f"files are left in /dev/shm: {left}")
    except Broken as error:
        failed(mode, seed, plan, f"at the end of the session: {error}")
    for name in os.listdir(temporary):
        os.unlink(os.path.join(temporary, name))
    os.rmdir(temporary)
    claim.close()
    return session.figures if session is not None else Figures()


def _claim_block(number: int) -> tuple[str, socket.socket]:
    """Loopback addresses (their first two numbers) that no other campaign of this machine has, and the socket
    that says so."""
    for turn in range(BLOCKS):
        place = (os.getpid() * 7 + number + turn) % BLOCKS
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0softhca-chaos-{place}")
        except OSError:
            claim.close()
            continue
        return f"127.{FIRST_BLOCK + place}", claim
    raise RuntimeError("no addresses are free")


def _shared_files() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "softhca" in name}


def add(total: Figures, more: Figures) -> None:
    """Counts add up, most is most."""
    for name, value in vars(more).items():
        if isinstance(value, dict):
            _add_counts(getattr(total, name), value)
        elif name.endswith("most_ns"):
            setattr(total, name, max(getattr(total, name), value))
        else:
            setattr(total, name, getattr(total, name) + value)


def _add_counts(total: dict[str, Any], more: dict[str, Any]) -> None:
    for key, count in more.items():
        if isinstance(count, dict):
            _add_counts(total.setdefault(key, {}), count)
        else:
            total[key] = total.get(key, 0) + count


def told(counts: dict[str, int]) -> str:
    """How long after a peer's end survivors were told, in words."""
    steps = sorted((int(step), count) for step, count in counts.items())
    whole = sum(count for _, count in steps)

    def within(share: float) -> str:
        seen = 0
        for step, count in steps:
            seen += count
            if seen >= share * whole:
                return f"{step * TOLD_STEP_MS / 1000:.2f} s"
        return ""

    early = sum(count for step, count in steps if step * TOLD_STEP_MS <= 1000)
    return (
        f"{whole:,} told, {early / max(whole, 1):.1%} within a second; "
        f"half within {within(0.5)}, 99 % within {within(0.99)}, all within {within(1)}"
    )


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    columns = ("rounds", "processes", "connects", "killed", "stopped", "ended", "operations")
    lines = [
        "| mode | " + " | ".join(columns) + " | told, at most | bystander's pause, at most |",
        "| --- " * (len(columns) + 3) + "|",
    ]
    for mode, figures in report["modes"].items():
        lines.append(
            f"| {mode} | "
            + " | ".join(f"{figures[name]:,}" for name in columns)
            + f" | {figures['told_most_ns'] / 1e9:.2f} s | {figures['pause_most_ns'] / 1e6:.0f} ms |"
        )
    sums: dict[str, dict[str, Any]] = {"kinds": {}, "traffic": {}, "told": {}}
    for figures in report["modes"].values():
        for name, counts in sums.items():
            _add_counts(counts, figures[name])
    lines.append("survivors of a peer's end or stop:")
    lines += [f"  {name}: {told(counts)}" for name, counts in sorted(sums["told"].items())]
    for word, name in (("rounds", "kinds"), ("rounds with", "traffic")):
        lines.append(f"{word}: " + ", ".join(f"{key} {count}" for key, count in sorted(sums[name].items())))
    lines.append(
        f"seed {report['seed']}, {report['seconds']} s: "
        + (f"{len(report['failures'])} FAILED" if report["failures"] else "nothing found")
    )
    return "\n".join(lines)


def replay(path: str) -> int:
    """One round, alone in a session of its own."""
    failure = json.loads(Path(path).read_text())
    found: list[str] = []
    play(
        failure["mode"],
        failure["seed"],
        [failure["plan"]] * 2,
        0,
        lambda: False,
        lambda mode, seed, plan, word: found.append(word),
    )
    print("\n".join(found) or "nothing found")
    return len(found)


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 when a promise was broken."""
    options = _options(arguments)
    become_reaper()
    isolate()
    if options.replay:
        return int(replay(options.replay) > 0)
    campaign = Campaign(options)
    campaign.run()
    report = campaign.report()
    print(table(report))
    if options.json:
        path = Path(options.json)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1))
    return int(bool(report["failures"]))


if __name__ == "__main__":
    sys.exit(main())
