"""A random mix of operations over several queue pairs, both sides asking at once."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interop_capture import read_frames
from interop_guest import Guest
from interop_judge import Conversation, conversation
from interop_link import Attributes, CellError, End, Link
from interop_matrix import Case, PeerBroken, PeerSilent
from interop_peer import Peer, PeerError

QUEUE_PAIRS = 4
DEPTH = 512
PATIENCE_S = 10.0
"""How long nothing may complete: many times the acknowledgement timeout of 0.54 s."""
LONGEST_S = 400.0
DEBUG = "/sys/kernel/debug"
ONCE = f"{DEBUG}/clear_warn_once"
LABELS = ("first", "the second")  # of unlike length: their patterns differ


@dataclass
class Plan:
    """How much, of which seed, with how many receives posted on a queue pair; ``empty``: with RDMA WRITEs and
    READs of no bytes.
    """

    seed: int
    operations: int
    receives: int
    empty: bool = True
    attributes: Attributes = field(default_factory=Attributes)


@dataclass
class Side:
    """One side of a mix that has run: what it says, and what the wire shows of what it asked."""

    name: str
    told: dict[str, Any]
    asked: dict[str, Conversation]

    @property
    def stalled(self) -> list[str]:
        """The queue pairs whose requests did not all complete."""
        return [name for name, left in self.told["left"].items() if left["asked"] < left["all"]]

    def sum(self, what: str) -> int:
        """A number of all conversations."""
        return sum(getattr(each, what) for each in self.asked.values())


@dataclass
class Mix:
    """Both sides, the requester of the cell first, and how our counters moved."""

    sides: list[Side]
    counters: dict[str, int]

    def side(self, name: str) -> Side:
        """The side of this name."""
        return next(each for each in self.sides if each.name == name)


class ConnectionEnded(CellError):
    """Requests or receives completed with an error; nothing else is known to be wrong."""


def mix(case: Case, plan: Plan, rough: bool = False) -> Mix:
    """Run it between the sides of a case; half of the operations is asked by each of them.

    Raises :class:`CellError` for whatever is wrong, and :class:`PeerSilent` when the kernel's requests stall
    though it is the kernel's turn, as the packets show; ``rough``, on a bad network, :class:`PeerBroken` when
    a connection ended and the kernel has warned of itself.
    """
    assert case.sides.capture is not None
    forget_warnings(case.sides.guest)
    link = case.link(attributes=plan.attributes, depth=DEPTH)
    found = run(link, link.requester if case.ours_asks else link.responder, case.sides.capture, plan)
    try:
        judge(found)
    except CellError as error:
        warnings = warned(case.sides.guest)
        broken = rough and warnings and isinstance(error, ConnectionEnded)
        raise (PeerBroken if broken else type(error))(f"{error}{warnings}") from None
    return found


def forget_warnings(guest: Guest) -> None:
    """Empty the guest's log, and let it warn again of what it warns of once."""
    mounted = f"[ -e {ONCE} ] || mount -t debugfs none {DEBUG}"
    guest.run("sh", "-c", f"{mounted}; echo 1 > {ONCE}; dmesg -c", check=False)


def warned(guest: Guest) -> str:
    """Where the guest's log has a warning of its SoftRoCE."""
    places = re.findall(r"WARNING: .* at \S*/rxe/(\S+)", guest.run("dmesg").out)
    return "".join(f"; the guest's log warns at {place}" for place in dict.fromkeys(places))


def run(link: Link, ours: End, capture: Callable[[Path], AbstractContextManager[object]], plan: Plan) -> Mix:
    """Run it on the queue pair of ``link`` and three more; counters are those of ``ours``."""
    names = ["qp", *(f"qp{number}" for number in range(1, QUEUE_PAIRS))]
    for number, name in enumerate(names[1:], 1):
        link.add(name, (0x123456 + 0x300000 * number) & 0xFFFFFF)
    before = ours.ask("counters")["counters"]
    with tempfile.TemporaryDirectory(prefix="softhca-interop-") as folder:
        path = Path(folder, "mix.pcap")
        with capture(path):
            results = together(link, plan, names)
        frames = read_frames(path)
    after = ours.ask("counters")["counters"]
    return Mix(sides_of(link, names, results, frames), {name: after[name] - before[name] for name in after})


def together(link: Link, plan: Plan, names: list[str]) -> list[dict[str, Any]]:
    """Both sides at once; what they say."""
    ends = (link.requester, link.responder)
    words = {
        "names": names, "seed": str(plan.seed), "count": plan.operations // (2 * len(names)),
        "mtu": link.setting.mtu_bytes, "receives": plan.receives, "empty": plan.empty,
    }  # fmt: skip
    told = [
        end.ask("mix_prepare", me=LABELS[side], other=LABELS[not side], **words)
        for side, end in enumerate(ends)
    ]
    for side, end in enumerate(ends):
        end.peer.begin("mix_run", there=told[not side], patience_s=PATIENCE_S)
    return _answers([end.peer for end in ends])


def _answers(peers: list[Peer]) -> list[Any]:
    """Both answers; the first error is raised when both have been heard."""
    results: list[Any] = []
    for peer in peers:
        try:
            results.append(peer.end(LONGEST_S))
        except PeerError as error:
            results.append(error)
    for result in results:
        if isinstance(result, PeerError):
            raise result
    return results


def sides_of(
    link: Link, names: list[str], results: list[dict[str, Any]], frames: list[dict[str, Any]]
) -> list[Side]:
    """Both sides, with what the wire shows."""

    def asked(requester: End, responder: End) -> dict[str, Conversation]:
        return {name: conversation(frames, requester.qps[name], responder.qps[name]) for name in names}

    return [
        Side(link.requester.peer.name, results[0], asked(link.requester, link.responder)),
        Side(link.responder.peer.name, results[1], asked(link.responder, link.requester)),
    ]


def judge(found: Mix) -> None:
    """Raises :class:`CellError` or :class:`PeerSilent` unless all is done and right."""
    wrong = [f"{side.name}: {text}" for side in found.sides for text in side.told["wrong"]]
    if wrong:
        ended = all(": status " in text for text in wrong)
        raise (ConnectionEnded if ended else CellError)("; ".join(wrong))
    stalls = [(side, name) for side in found.sides for name in side.stalled]
    texts = [f"{side.name}'s requests on {name} stall: {side.asked[name].told()}" for side, name in stalls]
    if texts:
        silent = all(
            side.name != "softhca" and side.asked[name].owes() == "requester" for side, name in stalls
        )
        raise (PeerSilent if silent else CellError)("; ".join(texts))
    if any(side.told["stalled"] for side in found.sides):
        raise CellError("a side has not received everything, though everything was acknowledged")
