"""Cells of connections by IP addresses: the kernel's rdma_cm and ib_cm against our communication manager.

Debian's programs on librdmacm run on both sides, in the guest on the kernel's `rdma_cm`, here on ours; and
`guest/connections.py` takes connections step by step, so that either side can be killed between two of them.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Sequence

from interop_cells_netem import netem
from interop_cells_programs import PATIENT
from interop_connections import OurAdapter, running
from interop_guest import Result, Session
from interop_link import CellError, expect
from interop_matrix import DIRECTIONS, SHORT_SETTINGS, Case, cell
from interop_network import COMMAND_HOST, address
from interop_peer import Peer, PeerError

PROGRAM_S, DATAGRAMS_S = 240.0, 20.0
LOSS = "loss 5%"
PINGS, PERFTEST_COUNT = 5, 40
LISTENS_NOT = re.compile(
    r"REJECTED[,;] error:? 8|UNREACHABLE[,;] error:? 1|Connection refused|rpoll: "
    r"|CM event bl blka 8"
)
"""What a client says whose peer does not listen yet (ended, but not well)."""
SECOND_LISTENS_NOT = "Failed to connect RDMA CM events"
"""What perftest says, before it ends by SIGSEGV, whose peer took the first of
its two connections and does not listen for the second one yet; its server waits for ever."""
GROUP, GROUP_MAC = "239.77.1.2", "33:33:ef:4d:01:02"
PORT = 7471
SHOW_IDS = ("rdma", "resource", "show", "cm_id", "link", "rxe0")
PING = re.compile(r"ping data: rdma-ping-\d")
DONE = re.compile(r"data transfers complete\n[^$]*return status 0")


class Program:
    """A pair of one of Debian's programs: the words of its server, and of its client, both without addresses.

    ``wanted`` must be found ``times`` times in what each end says.  Before an address stands the end's option
    for it; None: the server is given none.
    """

    def __init__(
        self, server: Sequence[str], client: Sequence[str], wanted: re.Pattern[str], times: int = 1,
        server_option: Sequence[str] | None = (), client_option: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.wanted, self.times = wanted, times
        self._server, self._client = list(server), list(client)
        self._server_option, self._client_option = server_option, list(client_option)

    def commands(self, there: str) -> tuple[list[str], list[str]]:
        """Of the server and the client, where the server is at the address ``there``."""
        own = [] if self._server_option is None else [*self._server_option, there]
        return [*self._server, *own], [*self._client, *self._client_option, there]


def ping(*more: str) -> Program:
    """rping, which compares what it has sent through the peer's memory."""
    words = ["-C", str(PINGS), "-v", "-V", *more]
    return Program(["rping", "-s", *words], ["rping", "-c", *words], PING, PINGS, ["-a"], ["-a"])


def same(words: str, wanted: re.Pattern[str] = DONE) -> Program:
    """A program whose ends are given the same words."""
    return Program(words.split(), words.split(), wanted, 1, ["-b"], ["-s"])


def perftest(name: str, size: int, *more: str) -> Program:
    """One of perftest's programs of bandwidth, in C at both ends, connected by rdma_cm."""
    words = [name, "-R", "-F", "-n", str(PERFTEST_COUNT), "-u", PATIENT, *more]
    if name != "ib_atomic_bw":  # whose size is fixed
        words += ["-s", str(size)]
    row = re.compile(rf"^ {size} +{PERFTEST_COUNT} ", re.MULTILINE)
    return Program(words, words, row, 1, None)


RPING = ping()
RPING_OWN_QP = ping("-q")
UCMATOSE = same("ucmatose -c 4 -C 5")
UCMATOSE_MIGRATES = same("ucmatose -m -c 2 -C 5")
UDADDY = same("udaddy -c 3 -C 5")
RSTREAM = same("rstream -S 3000 -C 20 -T v", re.compile(r"^custom +2.9k +20 ", re.MULTILINE))
RIOSTREAM = same("riostream -S 3000 -C 5 -T v", re.compile(r"^custom +2.9k +5 ", re.MULTILINE))


class LostError(Exception):
    """A client has gone for which its server waits: both begin anew."""


def pair(case: Case, program: Program) -> None:
    """Both ends of a program to their ends; the client begins anew while the server does not listen yet."""
    end_s = time.monotonic() + PROGRAM_S
    while True:
        try:
            return _pair(case, program)
        except LostError:
            if time.monotonic() > end_s:
                raise


def _pair(case: Case, program: Program) -> None:
    version = case.setting.version
    ours, kernel = address(COMMAND_HOST, version), case.sides.kernel_addresses[version]
    with _adapter(case) as adapter:
        there = kernel if case.ours_asks else ours
        server, client = program.commands(there)
        if case.ours_asks:
            said = _kernel_serves(case, adapter, server, client)
        else:
            said = _ours_serves(case, adapter, server, client)
    for end, text in zip(("client", "server"), said, strict=True):
        expect(f"{end}: {program.wanted.pattern}: {text}", len(program.wanted.findall(text)), program.times)


def _adapter(case: Case) -> OurAdapter:
    if case.sides.our_adapter is None:
        raise CellError("this takes root")
    return case.sides.our_adapter(case.setting.version)


def _kernel_serves(
    case: Case, adapter: OurAdapter, server: Sequence[str], client: Sequence[str]
) -> tuple[str, str]:
    session = case.sides.guest.start(*server)
    end_s = time.monotonic() + PROGRAM_S
    try:
        # a client of several connections that comes too early for the first ones spoils the server
        while "LISTEN" not in case.sides.guest.run(*SHOW_IDS).out and not session.ended():
            if time.monotonic() > end_s:
                raise CellError(f"{' '.join(server)} does not listen")
        while True:
            with running(adapter.start(*client)) as process:
                said, _ = process.communicate(timeout=PROGRAM_S)
                status = process.returncode
            if status == 0:
                break
            if SECOND_LISTENS_NOT in said:
                raise LostError(said)
            if session.ended() or time.monotonic() > end_s or not LISTENS_NOT.search(said):
                raise CellError(f"{' '.join(client)}: status {status}: {said[-800:]}")
        return said, _said(server, session.wait(PROGRAM_S))
    finally:
        if not session.ended():
            session.kill()


def _ours_serves(
    case: Case, adapter: OurAdapter, server: Sequence[str], client: Sequence[str]
) -> tuple[str, str]:
    end_s = time.monotonic() + PROGRAM_S
    with running(adapter.start(*server)) as process:
        while True:
            result = case.sides.guest.run(*client, timeout_s=PROGRAM_S, check=False)
            said = f"{result.out}\n{result.err}"
            if result.status == 0:
                break
            if SECOND_LISTENS_NOT in said:
                raise LostError(said)
            if process.poll() is not None or time.monotonic() > end_s or not LISTENS_NOT.search(said):
                raise CellError(f"{' '.join(client)}: status {result.status}: {said[-800:]}")
        words, _ = process.communicate(timeout=PROGRAM_S)
        if process.returncode:
            raise CellError(f"{' '.join(server)}: status {process.returncode}: {words[-800:]}")
    return said, words


def _said(argv: Sequence[str], result: Result) -> str:
    if result.status:
        raise CellError(f"{' '.join(argv)}: status {result.status}: {(result.err or result.out)[-800:]}")
    return f"{result.out}\n{result.err}"


@cell("rping", network=True, core=False, settings=SHORT_SETTINGS)
def rping(case: Case) -> None:
    """One connection; READ, WRITE and SEND over it."""
    pair(case, RPING)


@cell("rping -q", network=True, core=False, settings=SHORT_SETTINGS)
def rping_own(case: Case) -> None:
    """The program has the queue pair, and takes it through its states."""
    pair(case, RPING_OWN_QP)


@cell("ucmatose", network=True, core=False, settings=SHORT_SETTINGS)
def ucmatose(case: Case) -> None:
    """Four connections at once."""
    pair(case, UCMATOSE)


@cell("ucmatose -m", network=True, core=False, settings=SHORT_SETTINGS)
def ucmatose_migrates(case: Case) -> None:
    """Identifiers that go over to another event channel."""
    pair(case, UCMATOSE_MIGRATES)


@cell("udaddy", network=True, core=False, settings=SHORT_SETTINGS)
def udaddy(case: Case) -> None:
    """Datagram services are resolved (SIDR), and spoken with."""
    pair(case, UDADDY)


@cell("rstream", network=True, core=False, settings=SHORT_SETTINGS)
def rstream(case: Case) -> None:
    """librdmacm's sockets."""
    pair(case, RSTREAM)


@cell("riostream", network=True, core=False, settings=SHORT_SETTINGS)
def riostream(case: Case) -> None:
    """librdmacm's sockets with writes into the peer's memory."""
    pair(case, RIOSTREAM)


@cell("rping: 5 % lost", network=True, core=False, settings=SHORT_SETTINGS)
def rping_lost(case: Case) -> None:
    """With loss both ways, so that messages of the connection managers are lost, too."""
    with netem(case.sides.guest, LOSS, both=True):
        pair(case, RPING)


@cell("ucmatose: 5 % lost", network=True, core=False, settings=SHORT_SETTINGS)
def ucmatose_lost(case: Case) -> None:
    """Four connections and their ends, with loss both ways."""
    with netem(case.sides.guest, LOSS, both=True):
        pair(case, UCMATOSE)


@cell("ib_write_bw -R", network=True, core=False, settings=SHORT_SETTINGS[:1])
def write_bw_connected(case: Case) -> None:
    """Perftest itself at both ends (4.5 connects so by IPv4 alone); RDMA WRITE of 64 KiB."""
    pair(case, perftest("ib_write_bw", 65536))


@cell("ib_read_bw -R", network=True, core=False, settings=SHORT_SETTINGS[:1])
def read_bw_connected(case: Case) -> None:
    """RDMA READ of odd lengths, the same way."""
    pair(case, perftest("ib_read_bw", 9999))


@cell("ib_send_bw -R", network=True, core=False, settings=SHORT_SETTINGS[:1])
def send_bw_connected(case: Case) -> None:
    """SEND, whose receiver sleeps for events."""
    pair(case, perftest("ib_send_bw", 4097, "-e"))


@cell("ib_atomic_bw -R", network=True, core=False, settings=SHORT_SETTINGS[:1])
def atomic_bw_connected(case: Case) -> None:
    """Fetch-and-add."""
    pair(case, perftest("ib_atomic_bw", 8))


@cell("mckey", network=True, core=False, settings=SHORT_SETTINGS[:1])
def mckey(case: Case) -> None:
    """A group that the receiver joins by IGMP, and to which the other side sends.  The kernel joins none of
    IPv6 over RoCEv2 (ENOTSUPP).
    """
    guest, kernel = case.sides.guest, case.sides.kernel_addresses[4]
    guest.run("ip", "route", "replace", "224.0.0.0/4", "dev", "eth0")
    words = ["mckey", "-m", GROUP, "-C", "6", "-b"]
    with _adapter(case) as adapter:
        if case.ours_asks:  # ours sends
            receiver = guest.start(*words, kernel)
            try:
                _await_group(case, receiver)
                with running(adapter.start(*words, address(COMMAND_HOST, 4), "-s")) as process:
                    sent, _ = process.communicate(timeout=PROGRAM_S)
                got = _said(words, receiver.wait(PROGRAM_S))
            finally:
                if not receiver.ended():
                    receiver.kill()
        else:
            with running(adapter.start("stdbuf", "-oL", *words, address(COMMAND_HOST, 4))) as process:
                assert process.stdout is not None
                end_s = time.monotonic() + PROGRAM_S
                line = "joined"
                while f"joined dgid: ::ffff:{GROUP}" not in line:
                    line = process.stdout.readline()
                    if not line:
                        raise CellError("our mckey has ended")
                sent = got = ""
                while not got:  # a datagram may be lost on a busy machine, and nobody sends it again
                    sent = _said(words, guest.run(*words, kernel, "-s", timeout_s=PROGRAM_S, check=False))
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        got, _ = process.communicate(timeout=DATAGRAMS_S)
                    if not got and time.monotonic() > end_s:
                        raise CellError(f"our mckey waits for what was sent; sender: {sent[-400:]}")
    if "return status 0" not in sent or not DONE.search(got):
        raise CellError(f"sender: {sent[-400:]}; receiver: {got[-400:]}")


def _await_group(case: Case, receiver: Session) -> None:
    """Until the guest's adapter takes the group's packets, which its queue pair is attached for."""
    end_s = time.monotonic() + PROGRAM_S
    while GROUP_MAC not in case.sides.guest.run("ip", "maddress", "show", "dev", "eth0").out:
        if receiver.ended() or time.monotonic() > end_s:
            raise CellError(f"the guest's mckey does not join: {receiver.lines.queue}")


# step by step


class Ends:
    """The program `guest/connections.py` on both sides: who asks (``active``), who listens (``passive``)."""

    def __init__(self, case: Case, ours: Peer) -> None:
        version = case.setting.version
        kernel = case.sides.kernel
        hosts = address(COMMAND_HOST, version), case.sides.kernel_addresses[version]
        self.active, self.passive = (ours, kernel) if case.ours_asks else (kernel, ours)
        self.own, self.there = hosts if case.ours_asks else hosts[::-1]
        self.port = PORT

    def begin(self, *which: Peer) -> None:
        """Event channels for both, or for ``which``; each time another port."""
        self.port += 1
        for each in which or (self.active, self.passive):
            each.ask("cm_begin")

    def request(self) -> None:
        """A request that the passive side has taken, and not answered."""
        self.passive.ask("cm_listen", host=self.there, port=self.port)
        self.active.ask("cm_connect", own=self.own, host=self.there, port=self.port)
        self.hears(self.passive, "CONNECT_REQUEST")

    def reply(self) -> None:
        """One that it has accepted, which the active side's program has not seen."""
        self.request()
        self.passive.ask("cm_accept")

    def establish(self) -> None:
        """A connection."""
        self.reply()
        self.hears(self.active, "ESTABLISHED")
        self.hears(self.passive, "ESTABLISHED")

    def part(self) -> None:
        """One that the active side ends, which the passive side's program has not answered."""
        self.establish()
        self.active.ask("cm_disconnect")

    def hears(self, who: Peer, *kinds: str) -> None:
        """The next event of a side is one of ``kinds``."""
        found = who.ask("cm_event")["event"].removeprefix("RDMA_CM_EVENT_")
        if found not in kinds:
            raise CellError(f"{who.name} hears {found}, not {' or '.join(kinds)}")

    def works(self) -> None:
        """A connection that carries a message each way, and is ended."""
        self.establish()
        for sender, receiver, text in (
            (self.active, self.passive, "there"), (self.passive, self.active, "and back"),
        ):  # fmt: skip
            expect("sent", sender.ask("cm_send", text=text)["status"], 0)
            expect("received", receiver.ask("cm_receive"), {"status": 0, "text": text})
        self.active.ask("cm_disconnect")
        self.hears(self.passive, "DISCONNECTED")
        self.passive.ask("cm_disconnect")
        self.hears(self.active, "DISCONNECTED")


STATES: dict[str, Callable[[Ends], None]] = {
    "request": Ends.request, "reply": Ends.reply, "established": Ends.establish, "parting": Ends.part,
}  # fmt: skip
LEFT_ACTIVE = {"request": ("REJECTED",), "reply": ("REJECTED", "CONNECT_ERROR", "ESTABLISHED")}
LEFT_PASSIVE = {"request": ("REJECTED", "UNREACHABLE"), "reply": ("REJECTED", "UNREACHABLE", "CONNECT_ERROR")}
"""What tells who is left of a peer that is gone, by the state; elsewhere that the connection has ended."""


@cell("connections", network=True, core=False, settings=SHORT_SETTINGS)
def steps(case: Case) -> None:
    """Connections that come about, carry messages, are ended by either side, and are rejected."""
    with _adapter(case) as adapter:
        ends = Ends(case, adapter.peer())
        try:
            ends.begin()
            ends.works()
            ends.begin()
            ends.establish()
            ends.passive.ask("cm_disconnect")
            ends.hears(ends.active, "DISCONNECTED")
            ends.active.ask("cm_disconnect")
            ends.hears(ends.passive, "DISCONNECTED")
            ends.begin()
            ends.request()
            ends.passive.ask("cm_reject")
            ends.hears(ends.active, "REJECTED")
            _end(ends)
        except BaseException:
            _anew(case.sides.kernel)
            raise
        finally:
            _close_ours(ends, case)


def _end(ends: Ends) -> None:
    for each in (ends.active, ends.passive):
        each.ask("cm_end")


def _anew(kernel: Peer) -> None:
    """Whatever it waits for."""
    kernel.close()
    kernel.start()


def _close_ours(ends: Ends, case: Case) -> None:
    (ends.active if case.ours_asks else ends.passive).close()


def _killed(case: Case, active_dies: bool, state: str) -> None:
    """One side's process is killed in a state; the other one is told, and both can be connected anew."""
    with _adapter(case) as adapter:
        ends = Ends(case, adapter.peer())
        try:
            ends.begin()
            STATES[state](ends)
            victim, left = (ends.active, ends.passive) if active_dies else (ends.passive, ends.active)
            victim.close()
            if left is case.sides.kernel and active_dies and state == "request":
                victim.start()
                _refuses(left)  # it tells a program nothing of a request that was not accepted
            else:
                _hears_of_it(case, ends, left, active_dies, state)
                victim.start()
            ends.begin()
            ends.works()
            _end(ends)
        except BaseException:
            _anew(case.sides.kernel)
            raise
        finally:
            _close_ours(ends, case)


def _refuses(left: Peer) -> None:
    try:
        left.ask("cm_accept")
    except PeerError:
        return
    raise CellError(f"{left.name} accepts the request of a program that is gone")


def _hears_of_it(case: Case, ends: Ends, left: Peer, active_dies: bool, state: str) -> None:
    wanted = (LEFT_PASSIVE if active_dies else LEFT_ACTIVE).get(state, ("DISCONNECTED",))
    found = left.ask("cm_event")["event"].removeprefix("RDMA_CM_EVENT_")
    if found not in wanted:
        raise CellError(f"{left.name} hears {found}, not {' or '.join(wanted)}")
    if found == "ESTABLISHED":  # its program has seen the reply now: the goodbye comes behind it
        ends.hears(left, "DISCONNECTED", "REJECTED")
    case.note(f"{'active' if active_dies else 'passive'} side killed, {state}: {left.name} hears {found}")


def _register() -> None:
    for state in STATES:
        for active_dies in (True, False):
            who = "active" if active_dies else "passive"

            def work(case: Case, active_dies: bool = active_dies, state: str = state) -> None:
                _killed(case, active_dies, state)

            cell(
                f"{who} side killed: {state}", network=True, core=False, settings=SHORT_SETTINGS,
                directions=DIRECTIONS,
            )(work)  # fmt: skip


_register()
