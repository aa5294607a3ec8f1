"""The named scenarios: what traffic runs in a world, and what it suffers, as data."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from softhca.links.faults import FOREVER_NS, Crash, Faults, Partition
from softhca.simulation.kinds import (
    ADD,
    ATOMIC_WRITE,
    BAD_RESPONSE,
    BOARD_READ,
    BOARD_WRITE,
    FLUSH,
    LOCAL_LENGTH,
    OVERWRITE,
    RAW,
    RC,
    READ,
    READ_BACK,
    RELAY,
    REMOTE_ACCESS,
    REMOTE_INVALID,
    REMOTE_OPERATION,
    RETRY_EXCEEDED,
    SEND,
    SEND_IMM,
    SWAP,
    UC,
    UD,
    WRITE,
    WRITE_IMM,
)
from softhca.transport.uniform import UniformBursts

NO_FAULTS = Faults()
SWAP_OUT, MIGRATE = "swap", "migrate"
"""What a pager does."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """``adapters`` hosts, ``pairs`` pairs of queue pairs between any two of them (and ``inside`` pairs within
    each), and in both directions ``operations`` requests each of the ``kinds``, 0…``largest_bytes`` long.

    ``receives_first``: receives posted before the traffic begins (0: all); then one more each
    ``receive_every_ns``, if it is not 0.  ``shared``: receives come from one shared receive queue a host.
    ``legal``: statuses with which requests may fail in this world; where packets vanish they may time out.
    ``first_psn``: −1 is drawn from the seed.
    ``link``: ``ipv4``, ``ipv6``, ``native``, or ``raw`` (native, for raw datagrams alone).
    ``partition``: the seed cuts one direction, sometimes for ever.  ``forged``: behind so many packets a
    forger sends one of its own.  ``tampered``: so many requests are replaced by malformed ones.
    ``violation``: in each pair one side asks once for what it may not have.  ``crash``: the second adapter
    dies, and starts again, when the seed says.  ``quit``: one program of each pair closes its queue pair in
    the middle; ``drain``: it lets its send queue drain (state SQD), and goes on.  ``greedy``: requesters
    read more at once than was agreed; ``rounded``: as many as the next power of two says.
    ``revoke``: a region is deregistered while it is used.
    ``group``: every datagram goes to one multicast group, in which all queue pairs are.
    ``holds``: programs' memory is pageable, and swapped out and in, or moved, while it is used.
    ``mailbox``: programs send messages through `softhca.mailbox`.
    ``echoes``: NAKs that say nothing new follow RNR NAKs.
    ``window_bytes``: of each window (0: the usual), and on the way bursts are cut into datagrams.
    ``uniform``: which WRITEs and READs go as messages with packets of one length; None: none.
    ``races``: each host binds and withdraws so many memory windows while its neighbour uses them.
    ``conversations``: programs connect by the communication manager, so many from each adapter to each other
    one, send ``operations`` messages both ways, and part; ``rounds``: so often with the same queue pairs and
    the same PSNs.
    ``switches``: packets go through switches, joined as that one of `fabric_paths.LAYOUTS` says.
    ``ethernet``: through Ethernet switches, as that one of `ethernet_paths.LAYOUTS` says.
    ``ports`` of each adapter; ``failures``: so often one fails, and connections move to another one, whose
    paths the communication manager ``proposes``.
    ``datagrams``: programs have so many queue pairs of reliable datagrams each, and ``contexts`` pairs of EE
    contexts between any two adapters, of which ``failures`` get into error and are set up again.
    ``streams``: so many of `softhca.sockets` between any two adapters, each with up to ``largest_bytes``
    both ways.  ``sockets``: so many datagram sockets on each adapter, each of which sends
    ``operations`` datagrams to those of the others.  ``modules`` must be installed.
    ``lines``: so many connections from each adapter to each other one, whose requests name one of ``queues``
    shared receive queues of an XRC domain; 0: each has a receive queue of its own.
    ``disks``: the first adapter is an I/O unit's, and the others' programs read and write its blocks, with
    ``operations`` commands each; ``failures``: so often a channel or a port fails.
    ``gates``: the one adapter's peer is an adapter in gates, clock by clock.  ``extra``: what of the package
    brings the ``modules``.
    """

    name: str
    text: str
    service: int
    kinds: tuple[str, ...]
    faults: Faults = NO_FAULTS
    adapters: int = 2
    pairs: int = 2
    inside: int = 0
    operations: int = 20
    largest_bytes: int = 6_000
    receives_first: int = 0
    receive_every_ns: int = 0
    shared: bool = False
    legal: frozenset[int] = frozenset()
    first_psn: int = -1
    link: str = "ipv4"
    partition: bool = False
    forged: float = 0.0
    violation: bool = False
    crash: bool = False
    quit: bool = False
    greedy: bool = False
    drain: bool = False
    revoke: bool = False
    tampered: float = 0.0
    group: bool = False
    holds: str = ""
    mailbox: bool = False
    races: int = 0
    echoes: bool = False
    rounded: bool = False
    window_bytes: int = 0
    uniform: UniformBursts | None = None
    conversations: int = 0
    rounds: int = 1
    switches: str = ""
    ethernet: str = ""
    ports: int = 1
    failures: int = 0
    datagrams: int = 0
    contexts: int = 1
    streams: int = 0
    sockets: int = 0
    modules: tuple[str, ...] = ()
    lines: int = 0
    queues: int = 0
    disks: bool = False
    proposes: bool = False
    gates: bool = False
    extra: str = "fabric"


_RC_KINDS = (
    SEND, SEND_IMM, WRITE, WRITE, WRITE_IMM, OVERWRITE, OVERWRITE, READ, READ, READ_BACK, RELAY, ADD, SWAP,
    BOARD_WRITE, BOARD_READ, BOARD_READ,
)  # fmt: skip
_SPOILED = Faults(corruption=0.05, truncation=0.02, loss=0.02, reordering=0.02)
_UC_KINDS = (SEND, SEND_IMM, WRITE, WRITE_IMM)
_UD_KINDS = (SEND, SEND_IMM)
_RD_KINDS = (SEND, SEND, SEND, WRITE, READ, ADD)
_XRC_KINDS = (SEND, SEND, SEND, WRITE, WRITE, READ, ADD)
_UNIFORM = UniformBursts(100_000, 100_000, reads_under_way_bytes=0)
_CHAOS = Faults(loss=0.1, reordering=0.1, duplication=0.1, jitter_ns=2_000)
_MALFORMED = frozenset(
    {LOCAL_LENGTH, BAD_RESPONSE, REMOTE_INVALID, REMOTE_ACCESS, REMOTE_OPERATION, RETRY_EXCEEDED}
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("rc-mix", "every RC operation over a clean link", RC, _RC_KINDS, inside=1),
        Scenario(
            "rc-loss", "RC over a link that loses, also in bursts", RC, _RC_KINDS,
            Faults(loss=0.02, burst_loss=0.002, jitter_ns=500),
        ),
        Scenario(
            "rc-chaos", "RC with 10% loss, reordering and duplication each", RC, _RC_KINDS, _CHAOS,
        ),
        Scenario(
            "rc-corrupt", "RC over a link that flips bits and cuts packets", RC, _RC_KINDS,
            Faults(corruption=0.05, truncation=0.02), link="ipv6",
        ),
        Scenario(
            "rc-weather", "RC over a slow link that flaps; adapters stall, and their clocks run apart",
            RC, _RC_KINDS,
            Faults(
                loss=0.005, jitter_ns=3_000, bandwidth_bytes_per_s=2_000_000_000, flap_period_ns=3_000_000,
                flap_ns=200_000, stall_period_ns=2_000_000, stall_ns=150_000, skew_ppm=500,
            ),
        ),
        Scenario(
            "rc-bulk", "long RC messages, many packets each", RC, (SEND, WRITE, WRITE_IMM, READ, READ_BACK),
            Faults(loss=0.002, delay_ns=3_000), pairs=3, operations=6, largest_bytes=300_000,
        ),
        Scenario(
            "rc-crowd", "long RC messages of many queue pairs that share a window, over a clean link", RC,
            (SEND, WRITE, WRITE, READ), Faults(delay_ns=5_000), pairs=8, operations=2, largest_bytes=200_000,
            window_bytes=500_000,
        ),
        Scenario(
            "fabric", "RC between four adapters, and inside each", RC, _RC_KINDS,
            Faults(loss=0.01, reordering=0.01, duplication=0.01),
            adapters=4, pairs=1, inside=1, operations=10,
        ),
        Scenario(
            "rc-forged", "RC beside a forger whose packets look right", RC, _RC_KINDS,
            Faults(loss=0.002), forged=0.1,
        ),
        Scenario(
            "rc-trespass", "RC requests that ask for what they may not have", RC, _RC_KINDS,
            pairs=8, violation=True, operations=8,
        ),
        Scenario(
            "rc-crash", "RC while an adapter dies and starts again", RC, _RC_KINDS, Faults(loss=0.005),
            crash=True,
        ),
        Scenario(
            "rc-quit", "RC while programs close their queue pairs", RC, _RC_KINDS, Faults(loss=0.005),
            pairs=3, quit=True,
        ),
        Scenario(
            "rc-revoke", "RC while a region in use is deregistered", RC, _RC_KINDS, Faults(loss=0.002),
            pairs=3, revoke=True, legal=frozenset({REMOTE_ACCESS}),
        ),
        Scenario(
            "window-race", "memory windows bound, moved and invalidated while peers use them", RC, (),
            Faults(loss=0.005, reordering=0.02, duplication=0.02, jitter_ns=2_000), pairs=0, operations=0,
            races=6,
        ),
        Scenario(
            "rc-tampered", "RC while packets are replaced by malformed ones", RC, _RC_KINDS,
            tampered=0.02, pairs=4, legal=_MALFORMED,
        ),
        Scenario(
            "uc-tampered", "UC while packets are replaced by malformed ones", UC, _UC_KINDS, tampered=0.05
        ),
        Scenario(
            "native-mix", "every RC operation over native links", RC, _RC_KINDS, inside=1, link="native"
        ),
        Scenario(
            "native-chaos", "RC over native links with 10% loss, reordering and duplication each", RC,
            _RC_KINDS, _CHAOS, link="native",
        ),
        Scenario(
            "native-corrupt", "RC over native links that flip bits and cut packets", RC, _RC_KINDS,
            Faults(corruption=0.05, truncation=0.02), link="native",
        ),
        Scenario(
            "native-forged", "RC over native links between four adapters, beside a forger", RC, _RC_KINDS,
            Faults(loss=0.002), adapters=4, pairs=1, operations=12, forged=0.1, link="native",
        ),
        Scenario(
            "native-uc", "UC over native links that lose", UC, _UC_KINDS, Faults(loss=0.03), forged=0.05,
            link="native",
        ),
        Scenario(
            "native-ud", "UD over native links, beside a forger", UD, _UD_KINDS,
            adapters=3, pairs=1, inside=1, forged=0.1, link="native",
        ),
        Scenario(
            "incast", "RC of five adapters at one switch, the first behind a slow link", RC, _RC_KINDS,
            adapters=5, pairs=1, operations=8, link="native", switches="star",
        ),
        Scenario(
            "segment-switch", "the same through a switch that preserves segments", RC, _RC_KINDS,
            adapters=5, pairs=1, operations=8, link="native", switches="segment star",
        ),
        Scenario(
            "link-failure-under-load", "RC over two leaves and two spines while a link fails and returns", RC,
            _RC_KINDS, adapters=4, pairs=1, operations=25, link="native", switches="two spines",
        ),
        Scenario(
            "manager-failover", "RC while links fail and the master of two subnet managers dies", RC,
            _RC_KINDS, adapters=4, pairs=1, operations=25, link="native", switches="managed",
            modules=("numpy", "scipy"),
        ),
        Scenario(
            "lossy-incast", "RC of four adapters at one Ethernet switch that drops what its short queues do "
            "not take, the first behind a slow link", RC, _RC_KINDS,
            adapters=4, pairs=1, operations=6, ethernet="tail drop",
        ),
        Scenario(
            "ecn-incast", "RC with DCQCN of four adapters at one Ethernet switch that marks, the first "
            "behind a slow link", RC, _RC_KINDS,
            adapters=4, pairs=1, operations=8, ethernet="marks",
        ),
        Scenario(
            "ecn-uc", "UC with DCQCN of three adapters at one Ethernet switch that marks", UC, _UC_KINDS,
            adapters=3, pairs=1, operations=12, ethernet="marks",
        ),
        Scenario(
            "pfc-incast", "long RC messages with DCQCN of three adapters at two Ethernet switches that mark, "
            "and pause senders", RC, (SEND, WRITE, WRITE_IMM, READ, READ_BACK),
            adapters=3, pairs=1, operations=3, largest_bytes=30_000, ethernet="marks and pauses",
        ),
        Scenario(
            "rc-greedy", "RC to peers that take fewer reads at once than they are sent", RC,
            (READ, READ, READ, ADD, WRITE, SEND), pairs=4, operations=12, greedy=True,
            legal=frozenset({REMOTE_INVALID}),
        ),
        Scenario(
            "rc-rounded", "RC to peers that agreed to fewer reads at once, but not by a power of two", RC,
            (READ, READ, READ, ADD, WRITE, SEND), pairs=4, operations=12, rounded=True,
        ),
        Scenario(
            "rc-uniform", "RC whose WRITEs and READs go in packets of one length, with loss, reordering and "
            "duplication", RC, _RC_KINDS,
            Faults(loss=0.05, reordering=0.05, duplication=0.05, jitter_ns=2_000), inside=1, operations=40,
            uniform=_UNIFORM,
        ),
        Scenario(
            "rc-uniform-bulk", "long RC messages, of which those of up to 100,000 bytes go in packets of one "
            "length", RC, (SEND, WRITE, WRITE, WRITE, WRITE_IMM, READ, READ_BACK),
            Faults(loss=0.002, delay_ns=3_000), pairs=1, operations=60, largest_bytes=150_000,
            uniform=_UNIFORM,
        ),
        Scenario("uc-mix", "UC over a clean link", UC, _UC_KINDS, inside=1),
        Scenario(
            "uc-bulk", "long UC messages, many packets each", UC, _UC_KINDS, pairs=1, operations=8,
            largest_bytes=300_000,
        ),
        Scenario(
            "rc-drain", "RC while programs let their send queues drain, and go on", RC, _RC_KINDS,
            Faults(loss=0.005), drain=True,
        ),
        Scenario("uc-chaos", "UC with 10% loss, reordering and duplication each", UC, _UC_KINDS, _CHAOS),
        Scenario(
            "uc-corrupt", "UC over a link that flips bits, cuts, loses and reorders packets", UC, _UC_KINDS,
            _SPOILED, link="ipv6",
        ),
        Scenario(
            "ud-corrupt", "UD over a link that flips bits, cuts, loses and reorders packets", UD, _UD_KINDS,
            _SPOILED, link="ipv6",
        ),
        Scenario("uc-loss", "UC over a link that only loses", UC, _UC_KINDS, Faults(loss=0.05)),
        Scenario(
            "uc-forged", "UC beside a forger, with requests that ask for what they may not have",
            UC, _UC_KINDS, forged=0.1, violation=True,
        ),
        Scenario("ud-trespass", "UD requests that cannot be sent", UD, _UD_KINDS, violation=True),
        Scenario("ud-mix", "UD over a clean link", UD, _UD_KINDS, inside=1),
        Scenario("ud-chaos", "UD with 10% loss, reordering and duplication each", UD, _UD_KINDS, _CHAOS),
        Scenario(
            "ud-multicast", "UD to a multicast group of all queue pairs of three adapters", UD, _UD_KINDS,
            adapters=3, pairs=1, inside=1, operations=5, group=True,
        ),
        Scenario(
            "native-multicast", "UD to a multicast group over native links that lose and repeat", UD,
            _UD_KINDS, Faults(loss=0.05, duplication=0.05), adapters=3, pairs=1, inside=1, operations=5,
            group=True, link="native",
        ),
        Scenario(
            "ud-forged", "UD beside a forger, between four adapters", UD, _UD_KINDS,
            adapters=4, pairs=1, forged=0.2,
        ),
        Scenario(
            "raw-mix", "raw datagrams over a clean link: IPv6 in both encodings, EtherTypes", RAW, (SEND,),
            pairs=3, link="raw",
        ),
        Scenario(
            "raw-loss", "raw datagrams over a link that loses, reorders and duplicates", RAW, (SEND,),
            Faults(loss=0.05, reordering=0.05, duplication=0.05, jitter_ns=1_000), pairs=3, link="raw",
        ),
        Scenario(
            "rnr", "RC to a receiver that posts its receives late", RC, (SEND, SEND_IMM, WRITE_IMM, READ),
            Faults(loss=0.01), receives_first=1, receive_every_ns=150_000,
        ),
        Scenario(
            "rnr-end", "RC to a receiver that stops posting receives", RC,
            (SEND, SEND_IMM, WRITE_IMM, READ, WRITE), Faults(receives=4),
        ),
        Scenario(
            "rnr-naks",
            "RC to a receiver that posts its receives late, and NAKs what follows a refused packet",
            RC, (SEND, SEND_IMM, WRITE_IMM, READ), operations=10, receives_first=1, receive_every_ns=150_000,
            echoes=True,
        ),
        Scenario(
            "rnr-naks-end", "RC to one that stops posting receives, and NAKs what follows a refused packet",
            RC, (SEND, SEND_IMM, WRITE_IMM, READ, WRITE), Faults(receives=4), echoes=True,
        ),
        Scenario(
            "cq-late", "completion queues that are looked at late, and too short", RC, _RC_KINDS,
            Faults(cq_entries=9, poll_ns=300_000),
        ),
        Scenario(
            "psn-wrap", "RC across the end of the PSNs, with loss", RC, _RC_KINDS,
            Faults(loss=0.03, duplication=0.03), first_psn=0xFFFFF0,
        ),
        Scenario(
            "partition", "RC while one direction is cut, for a while or for ever", RC, _RC_KINDS,
            partition=True,
        ),
        Scenario(
            "srq", "RC to a shared receive queue, with loss", RC,
            (SEND, SEND_IMM, WRITE_IMM, WRITE, RELAY, READ), Faults(loss=0.02),
            pairs=3, shared=True,
        ),
        Scenario(
            "srq-quit", "RC to a shared receive queue while programs close their queue pairs", RC,
            (SEND, SEND_IMM, WRITE_IMM, WRITE, READ), pairs=3, shared=True, quit=True,
        ),
        Scenario(
            "swap-under-load", "RC while the memory in use is swapped out and in, or comes on demand",
            RC, _RC_KINDS, inside=1, holds=SWAP_OUT,
        ),
        Scenario(
            "migrate-under-load", "RC while the pages in use move under a stopped adapter", RC, _RC_KINDS,
            inside=1, holds=MIGRATE,
        ),
        Scenario(
            "uc-swap", "UC while the memory in use is swapped out and in", UC, _UC_KINDS, holds=SWAP_OUT
        ),
        Scenario("uc-migrate", "UC while the pages in use move", UC, _UC_KINDS, holds=MIGRATE),
        Scenario(
            "ud-swap", "UD while the memory in use is swapped out and in", UD, _UD_KINDS, holds=SWAP_OUT
        ),
        Scenario("ud-migrate", "UD while the pages in use move", UD, _UD_KINDS, holds=MIGRATE),
        Scenario(
            "torn-writes", "mailboxes whose blocks land, and are read, in pieces and in any order", RC,
            (WRITE, READ), Faults(loss=0.02, reordering=0.02, duplication=0.02, jitter_ns=2_000),
            pairs=1, operations=15, mailbox=True,
        ),
        Scenario(
            "window-forged", "memory windows beside a forger whose packets look right", RC,
            (),
            Faults(loss=0.002, jitter_ns=2_000), pairs=0, operations=0, races=6, forged=0.3,
        ),
        Scenario(
            "window-corrupt", "memory windows over a link that flips bits, cuts, loses, repeats and reorders",
            RC, (), dataclasses.replace(_SPOILED, duplication=0.05, jitter_ns=2_000), pairs=0, operations=0,
            races=6, forged=0.1, link="ipv6",
        ),
        Scenario(
            "native-window", "memory windows over native links, beside a forger", RC, (),
            Faults(loss=0.01, reordering=0.02, duplication=0.02, corruption=0.02), adapters=3, pairs=0,
            operations=0, races=5, forged=0.2, link="native",
        ),
        Scenario(
            "cm-under-loss", "many connections at once over links that lose a fifth, repeat and reorder",
            RC, (), Faults(loss=0.2, duplication=0.1, reordering=0.1, jitter_ns=2_000), adapters=3, pairs=0,
            operations=4, largest_bytes=3_000, conversations=4,
        ),
        Scenario(
            "native-cm", "many connections at once over native links that lose, repeat and reorder", RC, (),
            Faults(loss=0.1, duplication=0.1, reordering=0.1, jitter_ns=2_000), pairs=0,
            operations=4, largest_bytes=3_000, conversations=6, link="native",
        ),
        Scenario(
            "stale-connection", "connected again and again with the same queue pairs and PSNs, "
            "while packets of the old connections still come", RC, (),
            Faults(loss=0.002, duplication=0.3, reorder_ns=20_000_000), pairs=0, operations=5,
            largest_bytes=300, conversations=3, rounds=8,
        ),
        Scenario(
            "port-failover", "RC between adapters of two ports, one of which fails, and then the other",
            RC, (), Faults(duplication=0.02, reordering=0.02, jitter_ns=2_000), pairs=4, operations=40,
            largest_bytes=5_000, ports=2, failures=4,
        ),
        Scenario(
            "native-failover", "RC over native links between adapters of two ports that fail in turn", RC, (),
            Faults(jitter_ns=2_000), pairs=4, operations=40, largest_bytes=5_000, ports=2, failures=4,
            link="native",
        ),
        Scenario(
            "lap-failover", "connections that load alternate paths by LAP and APR while ports fail, and "
            "end along the last one", RC, (), Faults(duplication=0.02, reordering=0.02, jitter_ns=2_000),
            pairs=4, operations=40, largest_bytes=3_000, ports=2, failures=4, proposes=True,
        ),
        Scenario(
            "native-lap", "connections over native links that load alternate paths by LAP and APR", RC, (),
            Faults(jitter_ns=2_000), pairs=4, operations=24, largest_bytes=3_000, ports=2, failures=3,
            link="native", proposes=True,
        ),
        Scenario(
            "rd-chaos", "reliable datagrams with 5% loss, reordering and duplication each, few receives", RC,
            _RD_KINDS, Faults(loss=0.05, reordering=0.05, duplication=0.05, jitter_ns=2_000), adapters=3,
            pairs=0, operations=16, datagrams=3, contexts=2, receives_first=2,
        ),
        Scenario(
            "native-rd", "reliable datagrams over native links that lose, repeat and flip bits", RC,
            _RD_KINDS, Faults(loss=0.02, duplication=0.02, corruption=0.02, jitter_ns=2_000), pairs=0,
            operations=24, datagrams=4, contexts=3, link="native",
        ),
        Scenario(
            "rd-error-cache",
            "reliable datagrams by many EE contexts, of which one fails: nobody waits for it",
            RC, _RD_KINDS, pairs=0, operations=40, datagrams=4, contexts=12, failures=1,
        ),
        Scenario(
            "stream-under-loss",
            "streams of sockets over links that lose, repeat and reorder, to readers slow and quick",
            RC, (), Faults(loss=0.02, reordering=0.02, duplication=0.02, jitter_ns=2_000), pairs=0,
            operations=0, largest_bytes=80_000, streams=2,
        ),
        Scenario(
            "datagram-sockets",
            "datagram sockets over links that lose, repeat and reorder, to readers slow and quick", UD, (),
            Faults(loss=0.02, reordering=0.05, duplication=0.02, jitter_ns=2_000), adapters=3, pairs=0,
            operations=30, largest_bytes=20_000, sockets=2,
        ),
        Scenario(
            "native-datagram-sockets",
            "datagram sockets over native links that lose, repeat and flip bits, to readers slow and quick",
            UD, (), Faults(loss=0.02, duplication=0.02, corruption=0.01, jitter_ns=2_000), adapters=3,
            pairs=0, operations=30, largest_bytes=20_000, sockets=2, link="native",
        ),
        Scenario(
            "xrc-chaos", "XRC to three queues of each host, with 5% loss, reordering and duplication each, "
            "few receives", RC, _XRC_KINDS,
            Faults(loss=0.05, reordering=0.05, duplication=0.05, jitter_ns=2_000), adapters=3, pairs=0,
            operations=20, lines=2, queues=3, receives_first=2,
        ),
        Scenario(
            "native-xrc", "XRC over native links that lose, repeat and flip bits; requests that are refused",
            RC, _XRC_KINDS, Faults(loss=0.02, duplication=0.02, corruption=0.02, jitter_ns=2_000), pairs=0,
            operations=20, lines=4, queues=2, violation=True, link="native",
        ),
        Scenario(
            "xrc-quit", "XRC while one of the queues of each host is closed, which others do not notice", RC,
            _XRC_KINDS, adapters=3, pairs=0, operations=16, largest_bytes=4_000, lines=4, queues=3,
            receives_first=4, quit=True,
        ),
        Scenario(
            "atomic-write-flush",
            "RC with ATOMIC WRITE and FLUSH, 10% loss, reordering and duplication each, requests that are "
            "refused", RC,
            (WRITE, WRITE, ATOMIC_WRITE, ATOMIC_WRITE, FLUSH, FLUSH, SEND, READ, ADD), _CHAOS, adapters=3,
            pairs=0, operations=24, lines=2, violation=True,
        ),
        Scenario(
            "block-storage", "three hosts of an I/O unit over links that lose, repeat, reorder and flip "
            "bits, while channels end and ports go down", RC, (),
            Faults(loss=0.02, duplication=0.02, reordering=0.02, corruption=0.01, jitter_ns=2_000),
            adapters=4, pairs=0, operations=40, disks=True, failures=5,
        ),
        Scenario(
            "native-storage", "hosts of an I/O unit over native links, while channels end and ports go down",
            RC, (), Faults(loss=0.01, duplication=0.02, jitter_ns=2_000), adapters=3, pairs=0, operations=40,
            disks=True, failures=5, link="native",
        ),
        Scenario(
            "gates", "an adapter in gates and a software adapter: messages both ways, a refused request, a "
            "key that is withdrawn while it is used", RC, (), adapters=1, pairs=0, operations=4,
            largest_bytes=400, link="native", gates=True, modules=("amaranth",), extra="hardware",
        ),
    )
}  # fmt: skip
QUICK = tuple(name for name, scenario in SCENARIOS.items() if not scenario.gates)
"""Those whose worlds take no half minute each where nothing is compiled."""


def dice_of(scenario: Scenario, seed: int, purpose: str) -> random.Random:
    """A generator of its own for each purpose: one more draw for the one does not change the others."""
    return random.Random(f"{scenario.name}/{seed}/{purpose}")


def faults_of(scenario: Scenario, seed: int) -> Faults:
    """What a world of the scenario suffers by itself."""
    if scenario.crash:
        dice = dice_of(scenario, seed, "crash")
        start_ns = 1_000_000 + dice.randrange(100_000)
        crash = Crash(2, start_ns, start_ns + dice.randrange(1, 5_000_000))
        return dataclasses.replace(scenario.faults, crashes=(crash,))
    if not scenario.partition:
        return scenario.faults
    dice = dice_of(scenario, seed, "partition")
    source, destination = dice.choice(((1, 2), (2, 1)))
    start_ns = 1_000_000 + dice.randrange(100_000)
    end_ns = dice.choice((FOREVER_NS, start_ns + dice.randrange(1, 20_000_000)))
    return dataclasses.replace(
        scenario.faults, partitions=(Partition(source, destination, start_ns, end_ns),)
    )
