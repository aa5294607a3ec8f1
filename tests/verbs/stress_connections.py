"""Identifiers of RDMA CM under threads: listened, resolved, connected, ended and closed by anybody."""

from __future__ import annotations

import errno
import os
import random
from typing import Any, ClassVar

from stress_frame import ALLOWED, Frame


class Channel:
    """A channel of events whose descriptor does not block."""

    def __init__(self) -> None:
        from softhca.verbs.cmid import CMEventChannel

        self.channel = CMEventChannel()
        os.set_blocking(self.channel.fd, False)

    def close(self) -> None:
        self.channel.close()


class Connections(Frame):
    """Every method of a `CMID` that uses events, and what it has: its queue pair, its regions."""

    KINDS = ("channel", "listener", "id")
    FEW: ClassVar[dict[str, int]] = {"channel": 4, "listener": 4}
    SPARED: ClassVar[dict[str, float]] = {"channel": 0.9, "listener": 0.7}
    OFTEN = ("do_event", "do_step", "do_message")
    ALLOWED: ClassVar[set[int]] = ALLOWED | {
        errno.EAGAIN, errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ECONNREFUSED, errno.ENODATA, errno.ENOSYS,
    }  # fmt: skip

    def do_channel(self, rng: random.Random) -> None:
        if len(self.pools["channel"]) < 3:
            self.put("channel", Channel())

    def do_listen(self, rng: random.Random) -> None:
        from softhca.verbs.cmid import CMID, AddrInfo
        from softhca.verbs.librdmacm_enums import RAI_PASSIVE

        if (channel := self.any("channel", rng)) is None:
            return
        made = CMID(creator=channel.channel)
        self.put("listener", made)
        place = AddrInfo(src=f"{self.base}.2", src_service=str(rng.randrange(7000, 7003)), flags=RAI_PASSIVE)
        made.bind_addr(place)
        made.listen(rng.choice((0, 1, 8)))

    def do_make(self, rng: random.Random) -> None:
        from softhca.verbs.cmid import CMID, AddrInfo

        if (channel := self.any("channel", rng)) is None:
            return
        made = CMID(creator=channel.channel)
        self.put("id", made)
        made.resolve_addr(AddrInfo(dst=f"{self.base}.2", dst_service=str(rng.randrange(7000, 7003))))

    def do_event(self, rng: random.Random) -> None:
        from softhca.verbs import cm_enums as ce
        from softhca.verbs.cmid import CMID, CMEvent

        if (channel := self.any("channel", rng)) is None:
            return
        event = CMEvent(channel.channel)
        self.completions += 1
        if event.event_type == ce.RDMA_CM_EVENT_CONNECT_REQUEST:
            listener = self.any("listener", rng)
            if listener is None:
                event.event.identifier.close()
            else:
                made = CMID(creator=event, listen_id=listener)
                self.put("id", made)
                self.step(made, rng)
        event.ack_cm_event()

    def do_step(self, rng: random.Random) -> None:
        if (one := self.any("id", rng)) is not None:
            self.step(one, rng)

    @staticmethod
    def step(one: Any, rng: random.Random) -> None:
        """Something that an identifier may do at some time."""
        from softhca.verbs import enums as e
        from softhca.verbs.cmid import ConnParam
        from softhca.verbs.qp import QPCap, QPInitAttr

        def queue_pair() -> None:
            one.create_qp(QPInitAttr(e.IBV_QPT_RC, cap=QPCap(max_send_wr=4, max_recv_wr=4)))

        for call in (
            lambda: one.resolve_route(), queue_pair, lambda: one.connect(ConnParam()),
            lambda: one.accept(ConnParam()), one.disconnect, one.reject, one.establish,
            lambda: one.set_option(0, 0, 1, 4), lambda: one.init_qp_attr(1), lambda: one.query_qp(0),
            lambda: (one.dev_name, one.port_num, one.qpn, one.context, one.pd),
        ):  # fmt: skip
            if rng.random() < 0.2:
                call()

    def do_migrate(self, rng: random.Random) -> None:
        one, channel = self.any("id", rng), self.any("channel", rng)
        if one is not None and channel is not None and rng.random() < 0.2:
            one.migrate(channel.channel)

    def do_message(self, rng: random.Random) -> None:
        if (one := self.any("id", rng)) is None:
            return
        region = one.reg_msgs(64)
        if rng.random() < 0.5:
            one.post_recv(region)
        else:
            one.post_send(region)
