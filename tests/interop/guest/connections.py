"""`mix.py` with words for connections by IP addresses, each step of which is a word of its own: what the peer
does not do yet can be seen, and either side can be killed in between.
"""

from __future__ import annotations

from typing import Any

import mix
import peer
from pyverbs import cm_enums as ce
from pyverbs import enums as e
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.qp import QPCap, QPInitAttr

MESSAGE_BYTES = 64


class ConnectionPeer(mix.MixPeer):
    """One side of a connection: a listener and one identifier besides, on one event channel."""

    def cm_begin(self) -> dict[str, Any]:
        """Close what there is, and make a channel."""
        self.cm_end()
        self.channel = CMEventChannel()
        return {}

    def cm_end(self) -> dict[str, Any]:
        """Close what there is."""
        for name in ("cmid", "listener", "channel"):
            found = getattr(self, name, None)
            setattr(self, name, None)
            if found is not None:
                found.close()
        return {}

    def cm_listen(self, host: str, port: int) -> dict[str, Any]:
        """Listen at an address."""
        self.listener = CMID(creator=self.channel)
        self.listener.bind_addr(AddrInfo(src=host, src_service=str(port), flags=ce.RAI_PASSIVE))
        self.listener.listen()
        return {}

    def cm_connect(self, own: str, host: str, port: int) -> dict[str, Any]:
        """Send a request to ``host`` from the address ``own``; the answer is an event."""
        self.cmid = CMID(creator=self.channel)
        self.cmid.resolve_addr(AddrInfo(src=own, dst=host, dst_service=str(port)), 10_000)
        self._expect("RDMA_CM_EVENT_ADDR_RESOLVED")
        self.cmid.resolve_route(10_000)
        self._expect("RDMA_CM_EVENT_ROUTE_RESOLVED")
        self._queue_pair()
        self.cmid.connect(ConnParam())
        return {}

    def _queue_pair(self) -> None:
        """With a receive, since the peer may send as soon as it is connected."""
        self.cmid.create_qp(QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=4, max_recv_wr=4)))
        self.hear, self.say = self.cmid.reg_msgs(MESSAGE_BYTES), self.cmid.reg_msgs(MESSAGE_BYTES)
        self.cmid.post_recv(self.hear)

    def _expect(self, wanted: str) -> None:
        found = self.cm_event()["event"]
        if found != wanted:
            raise ValueError(f"{found}, not {wanted}")

    def cm_event(self) -> dict[str, Any]:
        """The next event, whatever time it takes; a request becomes this side's identifier."""
        event = CMEvent(self.channel)
        name = event.event_str()
        if name == "RDMA_CM_EVENT_CONNECT_REQUEST":
            self.cmid = CMID(creator=event, listen_id=self.listener)
        event.ack_cm_event()
        return {"event": name}

    def cm_accept(self) -> dict[str, Any]:
        """Accept the request."""
        self._queue_pair()
        self.cmid.accept(ConnParam())
        return {}

    def cm_reject(self) -> dict[str, Any]:
        """Reject the request."""
        self.cmid.reject()
        return {}

    def cm_disconnect(self) -> dict[str, Any]:
        """End the connection, or answer that the peer has ended it."""
        self.cmid.disconnect()
        return {}

    def cm_send(self, text: str) -> dict[str, Any]:
        """Send a message."""
        self.say.write(text.encode().ljust(MESSAGE_BYTES, b"\0"), MESSAGE_BYTES)
        self.cmid.post_send(self.say)
        return {"status": self.cmid.get_send_comp().status}

    def cm_receive(self) -> dict[str, Any]:
        """The message that has come."""
        status = self.cmid.get_recv_comp().status
        return {"status": status, "text": self.hear.read(MESSAGE_BYTES, 0).rstrip(b"\0").decode()}


if __name__ == "__main__":
    peer.main(ConnectionPeer)
