"""``softhca perf``: perftest's tests by perftest's names, able to talk to perftest's programs.

Bandwidth tests keep 128 work requests posted, in chains of 16 (``--post-list``: of others, and four chains
posted at least); their ``latency_us`` is the time from the posting of a chain to its completion.  Latency
tests have one operation under way.  As in perftest the client measures.  Mailbox tests send messages through
`softhca.mailbox`; no perftest program knows them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from softhca.cli import output
from softhca.cli.figures import compiled, latency_us
from softhca.cli.numbers import number, seconds
from softhca.cli.perf_bandwidth import Measured
from softhca.cli.perf_ends import MIB, Outcome, run_end
from softhca.cli.perf_plan import (
    BATCH,
    DEFAULT_TIMEOUT_CODE,
    MOST_QUEUE_PAIRS,
    TESTS,
    TRANSMIT_DEPTH,
    Plan,
    plan_of,
)
from softhca.cli.roles import add_device_options, add_role_options, control_connection
from softhca.mailbox.hashes import ALGORITHMS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``perf`` takes to its ``parser``."""
    parser.add_argument("test", choices=TESTS, metavar="TEST", help=", ".join(TESTS))
    add_role_options(parser)
    parser.add_argument(
        "--qp-type",
        choices=("RC", "UC", "UD"),
        default="RC",
        type=str.upper,
        help="transport service (default RC)",
    )
    _add_amounts(parser)
    _add_ways(parser)
    parser.add_argument(
        "--link",
        choices=("udp", "shm"),
        default="udp",
        help="what is measured: packets, or shared memory on this host (default udp)",
    )
    parser.add_argument(
        "--target",
        choices=("poll", "idle", "busy", "asleep"),
        default="poll",
        help="what a passive server does meanwhile: drive its adapter, wait in a system call, compute "
        "in Python, sleep (default poll)",
    )
    parser.add_argument(
        "--hash",
        choices=ALGORITHMS,
        default="xxh3-128",
        help="what proves the messages of mailbox tests (default %(default)s)",
    )
    add_device_options(parser)
    output.add_json_option(parser)


def _add_amounts(parser: argparse.ArgumentParser) -> None:
    """How much is done, and how much of it at a time."""
    parser.add_argument(
        "-s",
        "--size",
        type=number(1, 1 << 31),
        default=None,
        metavar="BYTES",
        help="message size (default: bw 65536, lat 2, mailbox 64)",
    )
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "-n",
        "--iters",
        type=number(1, 1 << 40),
        default=None,
        metavar="N",
        help="operations a queue pair (default 1000; write-bw: 5000)",
    )
    amount.add_argument("--seconds", type=seconds, default=None, metavar="T", help="run for so long instead")
    parser.add_argument(
        "-q",
        "--qps",
        type=number(1, MOST_QUEUE_PAIRS),
        default=1,
        metavar="N",
        help="queue pairs (default 1)",
    )
    parser.add_argument(
        "-t",
        "--tx-depth",
        type=number(1, 1024),
        default=0,
        metavar="N",
        help=f"work requests posted at a time in bandwidth tests (default {TRANSMIT_DEPTH}); with 1 the "
        "latency that is printed is that of one request, from before it is posted to its completion",
    )
    parser.add_argument(
        "--post-list",
        type=number(1, 256),
        default=BATCH,
        metavar="N",
        help="bw: work requests posted together, of which the last is signaled (default %(default)s)",
    )


def _add_ways(parser: argparse.ArgumentParser) -> None:
    """Who asks, and with which sizes; both ends must be given the same."""
    parser.add_argument(
        "-a",
        "--all",
        action="store_true",
        help="all sizes, the powers of two from 2 bytes to 8 MiB (UD: to the MTU), one after the other",
    )
    parser.add_argument(
        "-b", "--bidirectional", action="store_true", help="bw: both ends ask at the same time"
    )
    parser.add_argument(
        "-u",
        "--qp-timeout",
        type=number(1, 31),
        default=DEFAULT_TIMEOUT_CODE,
        metavar="CODE",
        help="RC: the acknowledgement timeout is 4.096 µs times two to the CODE (default %(default)s)",
    )
    parser.add_argument("--reversed", action="store_true", help="bw: the server asks, not the client")


def run(args: argparse.Namespace) -> int:
    """Run one end, or both."""
    plan = plan_of(args)
    with control_connection(args, ["perf", *peer_arguments(args, plan)]) as control:
        outcomes = run_end(args, plan, control)
        control.close()
    if outcomes and args.listen_fd is None:  # nobody reads what a second process says
        _print(args, plan, outcomes)
    return 0


def peer_arguments(args: argparse.Namespace, plan: Plan) -> list[str]:
    """The arguments of the server that fits a client with ``args``."""
    amount = ["--seconds", str(plan.seconds)] if plan.seconds else ["--iters", str(plan.iterations)]
    ways = [
        option
        for option, wanted in (("-a", plan.all_sizes), ("-b", plan.both), ("--reversed", plan.reversed))
        if wanted
    ]
    if plan.tx_depth and (plan.both or plan.reversed):
        ways += ["--tx-depth", str(plan.tx_depth)]
    if not plan.all_sizes:
        ways += ["--size", str(plan.size_bytes)]
    return [
        plan.test,
        "--qp-type",
        plan.service.upper(),
        *ways,
        *amount,
        "--qps",
        str(plan.queue_pairs),
        "--target",
        plan.target,
        "--hash",
        plan.algorithm,
        "--post-list",
        str(plan.post_list),
        "--link",
        args.link,
        "-l",
        str(args.sl),
        "--silence",
        str(args.silence),
        "--qp-timeout",
        str(args.qp_timeout),
    ]


def result_of(args: argparse.Namespace, plan: Plan, measured: Measured) -> dict[str, Any]:
    """The JSON document."""
    rate = measured.operations * 1e9 / max(measured.elapsed_ns, 1)
    return {
        "test": plan.test,
        "qp_type": plan.service.upper(),
        "link": args.link,
        "size_bytes": plan.size_bytes,
        "iterations": measured.operations,
        "bandwidth_bytes_per_s": rate * plan.size_bytes,
        "message_rate_per_s": rate,
        "latency_us": latency_us(measured.samples_ns),
        "compiled": compiled(),
    }


def document_of(args: argparse.Namespace, plan: Plan, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The JSON document of a test: `result_of` its one size, or a list of them below ``sizes``.

    Of a bidirectional test each has besides ``peer_bandwidth_bytes_per_s`` and ``peer_message_rate_per_s``,
    as the peer measured them (null where the exchange has no report, with ``--seconds`` in ``send-bw``).
    """
    results = []
    for outcome in outcomes:
        result = result_of(args, replace(plan, size_bytes=outcome.size_bytes), outcome.measured)
        if plan.both:
            peer = outcome.peer
            result["peer_bandwidth_bytes_per_s"] = peer.average_mib_per_s * MIB if peer else None
            result["peer_message_rate_per_s"] = peer.million_messages_per_s * 1e6 if peer else None
        results.append(result)
    if not plan.all_sizes:
        return results[0]
    return {"test": plan.test, "qp_type": plan.service.upper(), "link": args.link, "sizes": results}


def _print(args: argparse.Namespace, plan: Plan, outcomes: Sequence[Outcome]) -> None:
    document = document_of(args, plan, outcomes)
    if args.json:
        output.print_json(document)
        return
    title = f"{plan.test} {plan.service.upper()}, {plan.queue_pairs} queue pair(s)"
    if plan.all_sizes:
        columns = ["bytes", "operations", "bandwidth", "messages /s", "latency p50"]
        rows = [_row(result) for result in document["sizes"]]
        if plan.both:
            columns.append("the peer's bandwidth")
        output.print_table(title, columns, rows)
        return
    output.print_table(title, ("what", "value"), _lines(document))


def _row(result: dict[str, Any]) -> list[str]:
    """One size in the table of many."""
    row = [
        f"{result['size_bytes']}",
        f"{result['iterations']}",
        f"{output.bytes_text(result['bandwidth_bytes_per_s'])}/s",
        f"{result['message_rate_per_s']:,.0f}",
        f"{result['latency_us']['p50']:.2f} µs" if result["latency_us"]["p50"] else "not told",
    ]
    if "peer_bandwidth_bytes_per_s" in result:
        row.append(_peer_bandwidth(result))
    return row


def _peer_bandwidth(result: dict[str, Any]) -> str:
    told = result["peer_bandwidth_bytes_per_s"]
    return "not told" if told is None else f"{output.bytes_text(told)}/s"


def _lines(result: dict[str, Any]) -> list[tuple[str, str]]:
    """The table of one size."""
    rows = [
        ("operations", f"{result['iterations']}"),
        ("size", f"{result['size_bytes']} bytes"),
        ("bandwidth", f"{output.bytes_text(result['bandwidth_bytes_per_s'])}/s"),
        ("messages", f"{result['message_rate_per_s']:,.0f} /s"),
    ]
    if "peer_bandwidth_bytes_per_s" in result:
        rows.append(("the peer's bandwidth", _peer_bandwidth(result)))
    rows += [(f"latency {name}", f"{value:.2f} µs") for name, value in result["latency_us"].items() if value]
    rows.append(("modules", "compiled" if result["compiled"] else "interpreted"))
    return rows
