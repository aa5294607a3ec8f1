"""Bugs that no world sees, so tests judge these mutants: of the same-host path (docs/same-host.md), which no
world has, and of what floods cost.
"""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutant_edits import Mutant, MutantError, Source
from mutant_edits import mutant as m
from mutant_trials import BROKEN, FOUND, SURVIVED, Result

PROJECT = Path(__file__).resolve().parents[2]
TESTS = (
    "memory/test_shared_directory.py",
    "memory/test_shared_withdrawal.py",
    "runtime/test_runtime_same_host_ring.py",
    "runtime/test_runtime_same_host_costs.py",
    "runtime/test_runtime_same_host.py",
    "runtime/test_runtime_same_host_ports.py",
    "runtime/test_runtime_same_host_automatic.py",
    "runtime/test_runtime_loopback.py",
    "adapter/test_adapter_flood.py",
    "adapter/test_adapter_without_icrc.py",
    "runtime/test_runtime_transmitter.py",
    "runtime/test_runtime_loop_rules.py",
)
TEST_LIMIT_S = 60
RUN_LIMIT_S = 600
FAILED = re.compile(r"^(?:FAILED|ERROR) (?:tests/)?(.+?)(?: - (.*))?$", re.MULTILINE)

PATH = "memory/shared_path.py"
DIRECTORY = "memory/shared_directory.py"
ARENA = "memory/shared_arena.py"
LAYOUT = "memory/shared_layout.py"
SOURCE = "transport/same_host_source.py"
EXECUTOR = "transport/same_host.py"
LOOPBACK = "transport/loopback.py"
SHARING = "transport/same_host_sharing.py"
SHARED = "runtime/same_host.py"
PACKET_RING = "runtime/same_host_ring.py"
LOOP = "runtime/loop.py"
RECEIVE_PATH = "adapter/receive_path.py"
SOURCES = "adapter/sources.py"
TRANSMITTER = "runtime/transmitter.py"

NEAR = (
    m("near-key-asked-once", PATH, "if (self.known_epoch != self.epoch or self.known_key != key) and not", "if self.known_epoch != self.epoch and not",
      "within one entry of the path the first request's key is good for all"),
    m("near-key-outlives-the-entry", PATH, "if (self.known_epoch != self.epoch or self.known_key != key) and not", "if self.known_key != key and not",
      "a key that was looked up is good for ever"),
    m("near-domain-not-checked", PATH, "if self.known_rights >> 32 != pd or self.known_rights", "if self.known_rights",
      "a region of another protection domain is reached"),
    m("near-range-not-checked-from-its-place", PATH, "n > self.known_length - offset:", "n > self.known_length:",
      "what begins inside a region may end outside"),
    m("near-queue-pair-of-anybody", PATH, "                    and load64(entry + 24) == own\n", "",
      "another queue pair than the peer's is served"),
    m("near-queue-pair-s-rights-ignored", EXECUTOR, "if not self.allowed & right:", "if not self.allowed:",
      "a region's rights are enough, whatever the queue pair gives"),
    m("near-completes-before-the-copy", EXECUTOR, "                done += moved\n", "                done = n\n",
      "a request completes when its first piece is copied"),
    m("near-read-writes", EXECUTOR, "        if request.kind == _READ:\n            result = read_process", "        if False:\n            result = read_process",
      "an RDMA READ of a process's own memory writes there"),
    m("near-path-never-left", EXECUTOR, "        if self.inside:\n            self.inside = False\n            self.path.leave()\n", "        self.inside = False\n",
      "a path is never left"),
    m("near-withdrawal-does-not-wait", DIRECTORY, "        self.quiesce(concerns, peer)\n        table.give_back(number)", "        table.give_back(number)",
      "deregistering returns while a peer still copies"),
    m("near-withdrawal-waits-for-the-dead", DIRECTORY, "return load64(self.address) == epoch and self._is_alive()", "return load64(self.address) == epoch",
      "who died inside a path is waited for"),
    m("near-gate-ignored", PATH, "if load64(self.directory + _GATE) == 1:", "if True:",
      "stopped data access stops no peer"),
    m("near-served-before-established", SHARING, "queue_pair.state == RTR and queue_pair.established)", "queue_pair.state == RTR)",
      "a peer in RTR is never told of its connection"),
    m("near-withdrawal-waits-for-ever", DIRECTORY, "            if not pause():\n                self._waited_for = epoch\n", "            pause()\n",
      "who is stopped inside a path is waited for"),
    m("near-stopped-waited-for-each-time", DIRECTORY, "            if self._waited_for == epoch:\n", "            if not pause():\n",
      "each withdrawal waits anew for one that is stopped"),
    m("near-claim-not-revoked", DIRECTORY, "            self._revoke([reader for reader, _ in inside if concerns(reader.claim()[1])])\n", "            pass\n",
      "who is stopped as it writes does so after the withdrawal"),
    m("near-withdrawal-not-counted", DIRECTORY, "        self._count()\n        atomic_add64(address_of(self._fence), 1)  # a full barrier\n        inside", "        atomic_add64(address_of(self._fence), 1)  # a full barrier\n        inside",
      "who is inside goes on with what was withdrawn"),
    m("near-claims-that-hang-together-forgotten", DIRECTORY, "if (other, epoch) not in known and theirs.meets(claim):", "if False:",
      "another one's write into pages that are exchanged is lost, and completes"),
    m("near-region-on-exchanged-pages-stays", DIRECTORY, "                for key in keys:\n                    self._regions.empty(key)\n                emptied += keys\n", "",
      "peers write into pages that the owner does not read"),
    m("near-not-told-that-it-is-lost", DIRECTORY, "        store64(self.address + REVOKED, epoch)\n", "",
      "a WRITE completes whose bytes were lost"),
    m("near-call-not-revoked", DIRECTORY, "        store64(self.address + TARGET_LENGTH, 0)\n", "",
      "a call that comes late writes into the owner's own memory"),
    m("near-call-not-waited-for", DIRECTORY, "                reader.end_call(epoch, pause)\n", "                pass\n",
      "a call that is under way writes after the withdrawal"),
    m("near-struck-withdrawal-forgotten", DIRECTORY, "        if self._revoked:\n            self._exchange()\n", "",
      "a key that is pressed leaves pages in a peer's hands"),
    m("near-pages-given-out-too-early", ARENA, "            if page not in self._held:\n                self._restore(page)\n", "            self._restore(page)\n",
      "a stopped peer writes into another region's memory"),
    m("near-pages-not-copied", ARENA, "            for page in range(count):\n                primitives.atomic_add64(place + page * PAGE_BYTES, 0)  # a write: the kernel copies the page\n", "",
      "pages that were exchanged show what a peer writes"),
    m("near-exchanged-pages-granted", SHARING, "return (number, place) if arena.shares(place, length) else (0, 0)", "return number, place",
      "a region is granted on pages that its owner does not read"),
    m("near-claim-does-not-look", PATH, "        # has every processor pass before it reads claims.\n        return load64(self.directory + _CHANGES) == self.changes", "        return True",
      "who is inside writes without a look at withdrawals"),
    m("near-claim-outlives-the-entry", PATH, "        store64(self.reader + _CLAIM, 0)\n", "",
      "pages are exchanged that nobody claims"),
    m("near-claim-too-short", PATH, "word = ((address + n - 1 - self.last_base) >> bits.PAGE_SHIFT) - first + 1", "word = 1",
      "only the first page that is written to is claimed"),
    m("near-read-of-another-s-counts", PATH, "        if access == _READ:\n            return load64(self.directory + _CHANGES) == self.changes\n", "",
      "a READ completes with what came into the pages later"),
    m("near-lost-write-counts", EXECUTOR, "        if not self.path.unchanged_for(right):\n            return 0\n", "",
      "a WRITE completes whose claim was revoked"),
    m("near-atomic-done-twice", EXECUTOR, "            request.status = _RETRY_EXCEEDED\n", "",
      "an atomic that may have been done goes by packets again"),
    m("near-atomic-of-a-waiting-request-done-twice", SOURCE, "                executor.leave()\n                return request\n", "                executor.leave()\n                request.status = 0\n                return request\n",
      "an atomic that may have been done, whether it waited or not, goes by packets again"),
    m("near-directory-writable", LAYOUT, "fcntl.fcntl(fd, fcntl.F_ADD_SEALS, OWNER_WRITES | fcntl.F_SEAL_SEAL)", "fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)",
      "who is given a directory can write it"),
    m("near-directory-of-anybody-believed", LAYOUT, "wanted = FIXED_SIZE if writable else FIXED_SIZE | OWNER_WRITES", "wanted = FIXED_SIZE",
      "a directory that others can write is read"),
    m("near-dead-process-not-noticed", SHARED, "            if peer.process.has_ended():  # else the descriptor was another's a moment ago\n                self._drop(peer)\n", "            pass\n",
      "a child that holds the sockets keeps its dead parent's path"),
    m("near-closed-path-kept", SHARING, "if executor is None or executor.path is not path:", "if executor is None or executor.path.gid != destination:",
      "a queue pair that changes keeps a path that has closed"),
    m("near-broken-ring-not-told", PACKET_RING, "        self.broken = True\n        store64(self.closed, 1)\n        return False\n", "        self.broken = True\n        return False\n",
      "packets go into a ring that nobody reads"),
    m("near-broken-ring-used", PACKET_RING, "        if self.producer.broken:\n            store64(self.closed, 1)\n            return -_EPIPE\n", "",
      "packets are lost in a ring whose head jumps"),
    m("near-dead-peer-ignored", SHARED, "            if received is None:\n                self._drop(peer)\n", "            if received is None:\n",
      "a peer that has ended keeps its path"),
    m("near-user-not-asked", SHARED, "return uid == os.geteuid() and (pid", "return (pid",
      "another user's process is given memory"),
    m("near-namespace-not-asked", SHARED, "(pid > 0 or not self.automatic)", "True",
      "automatically, memory goes to another container of the same user number"),
    m("near-listener-polled-for-ever", SHARED, "                self._stop_listening(descriptor)\n", "                pass\n",
      "without descriptors an adapter never sleeps again"),
    m("near-child-keeps-peers-memory", SHARED, "            if isinstance(peer, OutboundPeer):\n                peer.close()\n            peer.channel.close()\n", "            peer.channel.close()\n",
      "a forked child keeps what peers gave"),
    m("near-paths-of-the-first-port", SHARING, "self.path_to(queue_pair.flow.port_number, route.source, route.destination)", "self.path_to(1, route.source, route.destination)",
      "a queue pair of another port has the first one's path"),
    m("near-ring-of-the-first-port", LOOP, "            self.adapter.receive(port.port_number, arrival, now)\n            receiver.done()", "            self.adapter.receive(1, arrival, now)\n            receiver.done()",
      "what comes through a ring has always come to the first port"),
    m("near-own-ports-met", SHARED, "return not self._closing and gid not in self._own", "return not self._closing",
      "an adapter has a path to itself"),
    m("near-ring-given-back-by-half", PACKET_RING, "self.consumer.release(2)", "self.consumer.release(1)",
      "a ring does not get past its end"),
    m("near-sleeper-not-called", PACKET_RING, "        if atomic_cas64(self.asleep, 1, 0):", "        if False:",
      "packets wait in the ring of one that sleeps"),
    m("near-icrc-missing-by-the-wire", TRANSMITTER, "        if not burst.has_icrc:\n            seal(burst)\n", "",
      "what was written for a ring that has gone is damaged to who gets it by UDP"),
    m("near-icrc-never-checked", RECEIVE_PATH, "        reason = 0\n        if arrival.has_icrc:", "        reason = 0\n        if False:",
      "damage on the wire reaches memory"),
    m("near-link-believes-the-ring", LOOP, "arrival: Arrival = self.ring_arrival", "arrival: Arrival = self.arrival",
      "after a burst of a ring no packet of the link is checked"),
    m("near-room-never-given-back", LOOP, "            receiver.done()\n", "",
      "a ring is full after the first bursts"),
    m("near-heads-longer-than-their-segments", PACKET_RING, "rest if rest < _HEAD_BYTES else _HEAD_BYTES", "_HEAD_BYTES",
      "bytes behind a burst are read"),
    m("near-icrc-over-what-was-not-fetched", PACKET_RING, "if not arrival.has_icrc and arrival.stride", "if arrival.stride",
      "long packets with ICRCs, which come first along a route, are taken for damaged"),
    m("near-burst-beyond-the-store", "queues/ring.py", "if self.body_base and n <= self.body_bytes - offset:", "if self.body_base:",
      "what runs over a ring's end is read behind its mapping"),
    m("near-ring-believed", PACKET_RING, "stride == 0 or stride > length:", "stride > length:",
      "a burst without a stride is taken from a peer"),
    m("loopback-of-anybody", LOOPBACK, " or peer.dest_qp != own.number:", ":",
      "a queue pair that is connected to another one takes what is meant for that"),
    m("loopback-addresses-not-compared", LOOPBACK, "return own.destination == peer.source and peer.destination == own.source", "return True",
      "a queue pair whose peer has another address is reached"),
    m("loopback-state-ignored", LOOPBACK, "        if peer.state != _RTR and peer.state != _RTS and peer.state != _SQD:\n            return False\n", "",
      "memory of a queue pair in error is written"),
    m("loopback-rights-ignored", LOOPBACK, "if not granted & right:", "if not granted:",
      "a region's rights are enough, whatever the queue pair gives"),
    m("loopback-answers-without-resources", LOOPBACK, "peer.access & _REMOTE if peer.max_dest_rd_atomic else peer.access & _REMOTE_WRITE", "peer.access & _REMOTE",
      "a queue pair that keeps no resources answers READs"),
    m("loopback-p-keys-ignored", LOOPBACK, "if (peer.pkey ^ own.pkey) & 0x7FFF or not (peer.pkey | own.pkey) & 0x8000:", "if False:",
      "partitions reach each other within an adapter"),
    m("loopback-range-of-the-first-byte", LOOPBACK, "request.work.remote_va, request.length_bytes, right,", "request.work.remote_va, 1, right,",
      "what begins inside a region may end outside"),
    m("loopback-connection-not-told", LOOPBACK, "            self._peer.establish()\n", "            pass\n",
      "a peer in RTR is never told of its connection"),
    m("loopback-completes-before-the-copy", LOOPBACK, "            done += piece\n", "            done = request.length_bytes\n",
      "a request completes when its first piece is copied"),
    m("loopback-stopped-access-ignored", LOOPBACK, "return not environment.regions.tpt.stopped and environment", "return environment",
      "stopped data access stops no loopback"),
    m("loopback-unaligned-atomic", LOOPBACK, "        if request.work.remote_va & 7:\n            return False\n", "",
      "an atomic operation on bytes that are not aligned is done"),
    m("flood-of-unknown-senders-costs-icrcs", RECEIVE_PATH, "            not local\n            or not receives(queue_pair)\n            or not from_peer(queue_pair, arrival, self._link, self._at.number)\n", "            not local\n",
      "the ICRC of packets is computed before it is known whether anybody here may have them"),
    m("flood-fills-the-table", SOURCES, "if len(self.unconnected) >= self.limit:", "if False:",
      "every sender of a sound datagram is remembered for ever"),
    m("flood-pushes-peers-out", SOURCES, "if queue_pair is not None and queue_pair.source is None:\n            queue_pair.source = self.connected[key] = source", "if False:\n            pass",
      "what is known of a connected peer stands among unknown senders"),
    m("strict-port-of-who-comes-first", RECEIVE_PATH, "if queue_pair.heard() != before:", "if True:",
      "the first packet from the peer's address says which port is the peer's, whether it fits or not"),
)  # fmt: skip
"""Judged by `TESTS`."""


class Bench:
    """Runs the same-host tests on copies of ``source``, ``jobs`` at a time."""

    def __init__(self, source: Source, jobs: int, tests: Sequence[str] = TESTS) -> None:
        self.source = source
        self.jobs = jobs
        self.files = [str(PROJECT / "tests" / test) for test in tests]

    def control(self) -> None:
        """MutantError where the unchanged source fails."""
        verdict, test, text = self._trial(self.source.original)
        if verdict != SURVIVED:
            raise MutantError(f"the unchanged source fails: {test} {text}")

    def run(self, mutants: Sequence[Mutant], report: Callable[[Result], object]) -> list[Result]:
        """All of them; ``report`` is told of each as it ends."""

        def one(numbered: tuple[int, Mutant]) -> Result:
            result = self.judge(numbered[1], f"near{numbered[0]}")
            report(result)
            return result

        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(one, enumerate(mutants)))

    def judge(self, mutant: Mutant, folder: str) -> Result:
        """Run one mutant."""
        result = Result(mutant.name, mutant.files, 0, mutant.why, mutant.rule, BROKEN, by="tests")
        start = time.monotonic()
        try:
            copy = self.source.copy(mutant, folder)
        except MutantError as error:
            result.text = str(error)
            return result
        edit = mutant.edits[0]
        result.line = edit.place(self.source.text(edit.file))
        try:
            result.verdict, result.scenario, result.rule = self._trial(copy)
        finally:
            shutil.rmtree(copy)
        if result.verdict == BROKEN:
            result.text = result.rule
        result.seconds = round(time.monotonic() - start, 1)
        return result

    def _trial(self, copy: Path) -> tuple[str, str, str]:
        """One run until a test fails: the verdict, the test, and what it said."""
        environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "200"}
        environment.pop("SOFTHCA_EXPECT", None)  # all inputs and modes, also those that one of two runs leaves out
        command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", f"--timeout={TEST_LIMIT_S}", *self.files]
        try:
            ended = subprocess.run(
                command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False,
                timeout=RUN_LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return FOUND, "", "hang"
        if ended.returncode == 0:
            return SURVIVED, "", ""
        failed = FAILED.search(ended.stdout)
        if ended.returncode == 1 and failed:
            return FOUND, failed[1].rpartition("/")[2], failed[2] or "it fails"
        if ended.returncode < 0:
            return FOUND, "", f"the process ended by signal {-ended.returncode}"
        return BROKEN, "", (ended.stderr + ended.stdout).strip().rpartition("\n")[2]
