"""``softhca perf``: perftest's tests by perftest's names, able to talk to perftest's programs.

Bandwidth tests keep 128 work requests posted, in chains of 16 (``--post-list``: of others, and four chains
posted at least); their ``latency_us`` is the time from the posting of a chain to its completion.  Latency
tests have one operation under way.  As in perftest the client measures.  Mailbox tests send messages through
`softhca.mailbox`; no perftest program knows them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from softhca.cli import output
from softhca.cli.errors import CommandError, UsageError
from softhca.cli.figures import compiled, latency_us
from softhca.cli.perf_bandwidth import BandwidthClient, Measured, Receiver, serve
from softhca.cli.perf_latency import LatencyEnd
from softhca.cli.perf_plan import (
    BATCH,
    MAX_INLINE_BYTES,
    MOST_QUEUE_PAIRS,
    READS,
    TESTS,
    TRANSMIT_DEPTH,
    Plan,
    plan_of,
)
from softhca.cli.perftest_exchange import SCRIPTS, Keys, PerftestExchange, Report
from softhca.cli.roles import add_device_options, add_role_options, control_connection, number, seconds
from softhca.mailbox.hashes import ALGORITHMS

if TYPE_CHECKING:
    from softhca.cli.control import ControlConnection
    from softhca.cli.endpoint import Endpoint

_MIB = 1 << 20


def add_parser(subparsers: Any) -> None:
    """Add ``perf``."""
    parser = subparsers.add_parser(
        "perf", help="bandwidth and latency, with perftest's programs as possible peers"
    )
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


def run(args: argparse.Namespace) -> int:
    """Run one end, or both."""
    plan = plan_of(args)
    with control_connection(args, ["perf", *peer_arguments(args, plan)]) as control:
        measured = run_end(args, plan, control)
        control.close()
    if measured is not None:
        _print(args, plan, measured)
    return 0


def peer_arguments(args: argparse.Namespace, plan: Plan) -> list[str]:
    """The arguments of the server that fits a client with ``args``."""
    amount = ["--seconds", str(plan.seconds)] if plan.seconds else ["--iters", str(plan.iterations)]
    return [
        plan.test,
        "--qp-type",
        plan.service.upper(),
        "--size",
        str(plan.size_bytes),
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
    ]


def run_end(args: argparse.Namespace, plan: Plan, control: ControlConnection) -> Measured | None:
    """One end of the test; the client returns what it measured."""
    client = not args.listen
    if plan.verb == "mailbox":
        from softhca.cli.perf_mailbox import run_end as run_mailbox

        return run_mailbox(args, plan, control)
    exchange = PerftestExchange(control, client)
    with open_endpoint(args, plan, client) as endpoint:
        mtu_code, cycle_bytes = exchange.introduce(endpoint.active_mtu_code)
        if cycle_bytes > endpoint.needs.area_bytes:
            raise CommandError(
                f"the peer cycles through {cycle_bytes} bytes, this end has {endpoint.needs.area_bytes}"
            )
        mine = [keys_of(endpoint, index) for index in range(plan.queue_pairs)]
        theirs = join(endpoint, exchange, plan, mine, mtu_code)
        with output.progress(plan.test, (plan.iterations * plan.queue_pairs) or None, client) as advance:
            work = _measure if client else _serve
            return work(endpoint, exchange, plan, mine, theirs, advance)


def open_endpoint(args: argparse.Namespace, plan: Plan, client: bool) -> Endpoint:
    """Device, memory and queue pairs for one end of ``plan``."""
    from softhca.cli.endpoint import Endpoint, Needs
    from softhca.cli.perftest_exchange import CYCLE_BUFFER_BYTES
    from softhca.verbs import enums as e

    access = (
        e.IBV_ACCESS_LOCAL_WRITE
        | {
            "write": e.IBV_ACCESS_REMOTE_WRITE,
            "read": e.IBV_ACCESS_REMOTE_READ,
            "send": 0,
            "atomic": e.IBV_ACCESS_REMOTE_ATOMIC,
        }[plan.verb]
    )
    area_bytes = max(plan.landing_bytes, CYCLE_BUFFER_BYTES)
    area_bytes += -area_bytes % CYCLE_BUFFER_BYTES
    inline_bytes = plan.size_bytes if plan.kind == "lat" and plan.size_bytes <= MAX_INLINE_BYTES else 0
    receives = plan.verb == "send" and (plan.kind == "lat" or not client)
    endpoint = Endpoint(
        Needs(
            plan.service,
            area_bytes,
            plan.queue_pairs,
            send_depth=plan.depth,
            receive_depth=plan.receive_depth if receives else 1,
            areas=plan.areas,
            access=access,
            inline_bytes=inline_bytes,
            reads=READS if plan.verb in ("read", "atomic") else 1,
            device=args.ib_dev,
            port=args.ib_port,
            gid_index=args.gid_idx,
            service_level=args.sl,
            silence_s=args.silence,
            shared=args.link == "shm",
        )
    )
    if plan.service == "ud" and plan.size_bytes > 128 << endpoint.active_mtu_code:
        endpoint.close()
        raise UsageError(
            f"a datagram of {plan.size_bytes} bytes is larger than the port's MTU of "
            f"{128 << endpoint.active_mtu_code} bytes"
        )
    return endpoint


def keys_of(endpoint: Endpoint, index: int) -> Keys:
    """What the peer must know about queue pair ``index``."""
    link = endpoint.links[index]
    return Keys(
        endpoint.lid,
        endpoint.needs.reads,
        link.qp.qp_num,
        link.psn,
        endpoint.mr.rkey,
        endpoint.address + endpoint.receive_area(index),
        endpoint.gid,
    )


def join(
    endpoint: Endpoint, exchange: PerftestExchange, plan: Plan, mine: list[Keys], mtu_code: int
) -> list[Keys]:
    """The handshakes up to connected queue pairs; returns the peer's keys."""
    from softhca.cli.endpoint import Peer

    script = SCRIPTS[plan.test]
    for _ in range(script.first):
        exchange.handshake(mine[0])
    theirs = [exchange.handshake(keys) for keys in mine]
    for index, keys in enumerate(theirs):
        endpoint.connect(index, Peer(keys.qpn, keys.psn, keys.gid, keys.lid, keys.out_reads), mtu_code)
    for keys in mine:
        exchange.handshake(keys)
    for _ in range(script.ready):
        exchange.handshake(mine[0])
    return theirs


def _measure(
    endpoint: Endpoint,
    exchange: PerftestExchange,
    plan: Plan,
    mine: list[Keys],
    theirs: list[Keys],
    advance: Any,
) -> Measured:
    """The client: run the test, then say so."""
    script = SCRIPTS[plan.test]
    test: BandwidthClient | LatencyEnd
    if plan.kind == "bw":
        test = BandwidthClient(endpoint, plan, theirs)
    else:
        test = LatencyEnd(endpoint, plan, theirs[0], exchange.control, client=True)
        test.post()
    for _ in range(script.posted):
        exchange.handshake(mine[0])
    measured = test.run(advance)
    if script.report:
        exchange.handshake(mine[0])
        exchange.report(report_of(plan, measured))
    if script.close:
        exchange.finish(mine[0])
    return measured


def _serve(
    endpoint: Endpoint,
    exchange: PerftestExchange,
    plan: Plan,
    mine: list[Keys],
    theirs: list[Keys],
    advance: Any,
) -> None:
    """The server: receive, answer or only be there, until the client is finished."""
    script, control = SCRIPTS[plan.test], exchange.control
    if plan.verb == "send" and plan.kind == "bw":
        receiver = Receiver(endpoint, plan)
        receiver.post()
        exchange.handshake(mine[0])
        receiver.run(control)
    elif plan.kind == "lat" and plan.verb in ("write", "send"):
        end = LatencyEnd(endpoint, plan, theirs[0], control, client=False)
        end.post()
        for _ in range(script.posted):
            exchange.handshake(mine[0])
        end.run(advance)
    else:
        serve(endpoint, control, plan.target)
    if script.report:
        exchange.handshake(mine[0], timeout_s=None)
        exchange.report(Report(plan.size_bytes, plan.iterations, 0.0, 0.0, 0.0))
    if script.close:
        serve(endpoint, control, "poll")
        exchange.finish(mine[0], timeout_s=None)
    else:
        control.readable(endpoint.needs.silence_s)


def report_of(plan: Plan, measured: Measured) -> Report:
    """``measured`` in the units that perftest's programs exchange."""
    rate = measured.operations * 1e9 / max(measured.elapsed_ns, 1)
    average = rate * plan.size_bytes / _MIB
    return Report(plan.size_bytes, measured.operations // plan.queue_pairs, average, average, rate / 1e6)


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


def _print(args: argparse.Namespace, plan: Plan, measured: Measured) -> None:
    result = result_of(args, plan, measured)
    if args.json:
        output.print_json(result)
        return
    rows = [
        ("operations", f"{result['iterations']}"),
        ("size", f"{plan.size_bytes} bytes"),
        ("bandwidth", f"{output.bytes_text(result['bandwidth_bytes_per_s'])}/s"),
        ("messages", f"{result['message_rate_per_s']:,.0f} /s"),
    ]
    rows += [(f"latency {name}", f"{value:.2f} µs") for name, value in result["latency_us"].items()]
    rows.append(("modules", "compiled" if result["compiled"] else "interpreted"))
    output.print_table(
        f"{plan.test} {plan.service.upper()}, {plan.queue_pairs} queue pair(s)", ("what", "value"), rows
    )
