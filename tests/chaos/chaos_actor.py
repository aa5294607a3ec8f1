"""A process of a chaos round: one open device, traffic in all its connections, and orders by JSON lines.

It is forked from the director, or started as a program (``python chaos_actor.py FDS …``) where it has to end
as programs end.  Between two orders it posts, polls and judges what it sees; what is wrong is told with the
next answer.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any

from chaos_inside import Inside
from chaos_ledger import GAP_NS, PROCESS_ROW, TURN_NS, Ledger
from chaos_script import Shape, make_pool
from chaos_talking import Party, Talking
from chaos_traffic import DRIVES, GONE, Connection, Group, Remote

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.driver.services import Reliability
from softhca.machine import primitives
from softhca.runtime import devices

NAME = "chaos"
CQ_ENTRIES = 16_384
IDLE_TURNS = 50
IDLE_S = 0.0005
LINE_BYTES = 1 << 16


class Actor(Inside, Talking):
    """One process.  ``ledgers`` are those of all processes by number, ``number`` its own."""

    def __init__(self, channel: socket.socket, ledgers: dict[int, Ledger], number: int, seed: int) -> None:
        self.channel = channel
        self.ledgers = ledgers
        self.ledger = ledgers[number]
        self.pool = make_pool(seed)
        self.driver: Any = None
        self.groups: dict[int, Group] = {}
        self.rows: dict[int, Connection] = {}
        self.running: dict[int, Connection] = {}
        self.parties: dict[int, Party] = {}
        self.dead_from: dict[int, int] = {}
        self.wrong: list[str] = []
        self.idle = 0
        self.rest_s = 0.0
        self.ending = ""
        self._line = b""

    # Orders

    def serve(self) -> str:
        """Until the director says ``end``; how to end."""
        while not self.ending:
            order = self._next(0 if self.running else 0.1)
            if order is not None:
                self._obey(order)
            elif self.driver is not None:
                self.step()
        return self.ending

    def _next(self, timeout_s: float) -> dict[str, Any] | None:
        while b"\n" not in self._line:
            if not select.select([self.channel], [], [], timeout_s)[0]:
                return None
            data = self.channel.recv(LINE_BYTES)
            if not data:
                return {"do": "end", "how": "leave"}
            self._line += data
        line, _, self._line = self._line.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _obey(self, order: dict[str, Any]) -> None:
        answer: dict[str, Any] = {}
        try:
            answer = getattr(self, "order_" + order.pop("do"))(**order) or {}
        except Exception:
            answer = {"failed": traceback.format_exc(limit=-6)}
        answer["wrong"], self.wrong = self.wrong[:20], []
        self.channel.sendall(json.dumps(answer).encode() + b"\n")

    def order_open(self, devices_text: str, mode: str) -> dict[str, Any]:
        """Open the device."""
        self.warm_up()
        os.environ.update(SOFTHCA_DEVICES=devices_text, SOFTHCA_ADAPTER=mode)  # sockets know no other
        registry.names()
        self.driver = registry.open_device(NAME)
        self.pd = self.driver.alloc_pd()
        self.cq = self.driver.create_cq(CQ_ENTRIES, "chaos")
        self.pool_address = primitives.address_of(self.pool, False)
        self.pool_key = self.driver.reg_mr(self.pd, self.pool_address, len(self.pool), 0, None, self.pool)
        device = devices.find(NAME)
        process = device.process
        return {
            "gid": self.driver.query_gid(1, 0).hex(),
            "mtu": self.driver.query_port(1)["active_mtu"],
            "adapter": process.pid if process is not None else 0,
            "path": process.path if process is not None else "",
        }

    def order_make(
        self, group: int, side: int, shape: dict[str, Any], kind: str, rows: list[int], seeds: list[int]
    ) -> dict[str, Any]:
        """Queue pairs and memory towards one other process."""
        made = Group(self, side, Shape(**{**shape, "kinds": tuple(shape["kinds"])}), kind, rows, seeds)
        self.groups[group] = made
        self.rows.update({each.row: each for each in made.connections})
        return {
            "qpns": [each.qp.number for each in made.connections],
            "rkey": made.granted.key.rkey,
            "lkey": made.private.key.lkey,
            "private": made.private.address,
            "vas": [made.granted.address + each.base for each in made.connections],
        }

    def order_connect(
        self,
        group: int,
        gid: str,
        mtu: int,
        far: dict[str, Any],
        psns: list[int],
        peer_psns: list[int],
        timeout: int,
        retry: int,
    ) -> None:
        """Connect the queue pairs of a group and begin."""
        for i, connection in enumerate(self.groups[group].connections):
            connection.connect(
                Remote(bytes.fromhex(gid), far["qpns"][i], peer_psns[i], far["vas"][i], far["rkey"], mtu),
                psns[i],
                Reliability(timeout=timeout, retry_cnt=retry, min_rnr_timer=6),
            )

    def order_run(self, group: int) -> None:
        """Begin to post."""
        self.running.update({each.row: each for each in self.groups[group].connections})

    def order_rest(self, seconds: float) -> None:
        """Rest between two turns, for the sake of others."""
        self.rest_s = seconds

    def order_quiet(self, group: int, limit_s: float) -> dict[str, Any]:
        """Post nothing more in a group and wait for what is under way; which rows are not done."""
        connections = self.groups[group].connections
        for connection in connections:
            self.running.pop(connection.row, None)
        end = time.monotonic() + limit_s
        while not all(each.quiet for each in connections) and time.monotonic() < end:
            self.step()
        return {
            "left": [each.row for each in connections if not each.quiet],
            "ended": {each.row: each.status for each in connections if each.status},
        }

    def order_check(self, group: int, ledger: int, rows: list[int], last: bool) -> None:
        """Judge every byte that the group's peer may have written; its words are ``ledger``'s."""
        self._take_all()
        for connection, row in zip(self.groups[group].connections, rows, strict=True):
            self.wrong += [
                f"connection {connection.row}: {word}"
                for word in connection.check(self.ledgers[ledger], row, last)
            ]
        self.wrong += self.groups[group].guards()

    def order_dead(self, group: int) -> None:
        """The peer has ended: look around, and post once more to each; that must not succeed."""
        end = time.monotonic() + 0.002
        while time.monotonic() < end:
            self.step(post=False)
        for connection in self.groups[group].connections:
            if not connection.status:
                self.dead_from[connection.row] = connection.posted + 1
                self._guarded(connection, lambda connection=connection: connection.post(1))

    def order_withdraw(self, group: int) -> None:
        """Destroy what a group has; its memory stays for another look."""
        self._take_all()
        for connection in self.groups[group].connections:
            self.running.pop(connection.row, None)
            self.dead_from.pop(connection.row, None)
            self.rows.pop(connection.row, None)
        self.groups[group].withdraw()

    def order_drop(self, group: int) -> None:
        """The same where it has not been done, and free the memory."""
        if self.groups[group].left is None:
            self.order_withdraw(group)
        self.wrong += self.groups.pop(group).drop()

    def order_end(self, how: str) -> None:
        """End: ``close`` everything first, ``leave`` it to the end of the program, or ``threads``: leave
        while threads are inside calls."""
        if how == "close":
            self.close()
        elif how == "threads":
            self.enter_calls()
        self.ending = how

    def close(self) -> None:
        """Close the device; what it still had is told."""
        self.part_all()
        if self.driver is not None:
            devices.remove(NAME)
            self.driver = None

    # Traffic

    def step(self, post: bool = True) -> int:
        """One turn: poll, judge, post; how many completions there were."""
        now = time.monotonic_ns()
        before = self.ledger.get(PROCESS_ROW, TURN_NS)
        if before and now - before > self.ledger.get(PROCESS_ROW, GAP_NS):
            self.ledger.set(PROCESS_ROW, GAP_NS, now - before)
        self.ledger.set(PROCESS_ROW, TURN_NS, now)
        try:
            found = self.cq.poll(64)
        except DriverError:
            self._lost()
            return 0
        for done in found:
            connection = self.rows.get(done.wr_id >> 40)
            if connection is None:
                continue
            word = connection.take(done)
            if (
                not done.status
                and not done.wr_id >> 39 & 1
                and connection.row in self.dead_from
                and (connection.completed >= self.dead_from[connection.row])
            ):
                word = f"{word} operation {connection.completed} to a dead peer succeeded"
            if word:
                self.wrong.append(f"connection {connection.row}: {word}")
        if post:
            for connection in list(self.running.values()):
                self._guarded(connection, connection.post)
        self.idle = 0 if found else self.idle + 1
        if self.idle > IDLE_TURNS or self.rest_s:
            time.sleep(self.rest_s or IDLE_S)
        return len(found)

    def _take_all(self) -> None:
        """Poll all that has been told up to now; others' traffic goes on, so that the queue may never be
        empty."""
        for _ in range(DRIVES):
            self.driver.progress()
        left = self.cq.waiting()
        while left > 0:
            left -= max(self.step(post=False), 1)

    def _guarded(self, connection: Connection, call: Any) -> None:
        try:
            call()
        except DriverError as error:
            if not self.driver.alive:
                self._lost()
            elif not connection.status:
                self.wrong.append(f"connection {connection.row}: {error}")
                connection.fail(GONE)

    def _lost(self) -> None:
        """The adapter is gone: every connection has ended."""
        for connection in self.rows.values():
            if not connection.status:
                connection.fail(GONE)
        self.running.clear()
        self.idle = IDLE_TURNS + 1
        time.sleep(IDLE_S)


def end_as_told(actor: Actor) -> None:
    """Serve; then leave the process without the forked director's ends."""
    status = 1
    try:
        actor.serve()
        devices.close_all()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    """As a program: the descriptors of channel and ledgers are given by number."""
    channel, number, seed, *pairs = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits that it is ignored
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    ledgers = {pairs[i]: Ledger(pairs[i + 1]) for i in range(0, len(pairs), 2)}
    Actor(socket.socket(fileno=channel), ledgers, number, seed).serve()


if __name__ == "__main__":
    main()
