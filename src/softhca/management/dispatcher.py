"""Who gets the management datagrams of one queue pair of a port, and how several clients share it.

*Requests* go to who is registered for their class, version and method: an `Agent`, which answers at once, or
a `Client`, a host that answers when it likes.  What nobody is registered for is answered with a status where
a response is due, and dropped otherwise; `VERDICTS` has every case.  For a class whose takers do not take
Get, the port answers Get ClassPortInfo itself.

*Responses* go to who asked.  Clients choose their transaction IDs themselves, and may choose the same; so
the upper 32 bits of a request's ID are the client's number while it is under way, and the response gets the
client's own ones back.  A response is taken from the port and in the class that the request went to, and
once.

Everything is bounded: registrations, requests whose response has not come (the oldest gives way), and what
waits to be sent.  All that is dropped is counted by reason.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import replace

from softhca.management import directed_route
from softhca.management.agents import Agent
from softhca.management.attributes import ClassPortInfo
from softhca.management.constants import (
    ANSWERED_METHODS,
    ATTRIBUTE_CLASS_PORT_INFO,
    BASE_VERSION,
    CLASS_SUBN_DIRECTED,
    MAD_BYTES,
    METHOD_GET,
    RESPONSE,
    STATUS_BAD_METHOD,
    STATUS_BAD_VERSION,
    STATUS_OK,
    SUBNET_CLASSES,
    SUBNET_QPN,
    UNANSWERED_METHODS,
)
from softhca.management.mad import Address, Mad, MadHeader
from softhca.management.outstanding import Outstanding

MAX_CLIENTS = 64
MAX_OUTSTANDING = 1024
LOW_BITS = 32
_LOW_MASK = (1 << LOW_BITS) - 1

COUNTERS = (
    "received",
    "answered",
    "delivered",
    "sent",
    "drops_length",
    "drops_qkey",
    "drops_rate",
    "drops_version",
    "drops_class",
    "drops_method",
    "drops_unmatched",
    "drops_route",
    "drops_client_full",
    "drops_queue_full",
)
"""What a dispatcher counts.  ``answered`` are responses of agents and refusals, ``delivered`` datagrams for
clients; a request that is refused with a status is counted as a drop too."""

# what becomes of a request
DISPATCH = "dispatch"
REFUSE = "refuse"
DROP = "drop"

VERDICTS: dict[tuple[bool, bool, bool, bool], tuple[str, int, str]] = {
    # (version known, class known, method known, answered): (what becomes of it, status, counter)
    (False, False, False, False): (DROP, 0, "drops_version"),
    (False, False, False, True): (REFUSE, STATUS_BAD_VERSION, "drops_version"),
    (False, False, True, False): (DROP, 0, "drops_version"),
    (False, False, True, True): (REFUSE, STATUS_BAD_VERSION, "drops_version"),
    (False, True, False, False): (DROP, 0, "drops_version"),
    (False, True, False, True): (REFUSE, STATUS_BAD_VERSION, "drops_version"),
    (False, True, True, False): (DROP, 0, "drops_version"),
    (False, True, True, True): (REFUSE, STATUS_BAD_VERSION, "drops_version"),
    (True, False, False, False): (DROP, 0, "drops_class"),
    (True, False, False, True): (REFUSE, STATUS_BAD_VERSION, "drops_class"),
    (True, False, True, False): (DROP, 0, "drops_class"),
    (True, False, True, True): (REFUSE, STATUS_BAD_VERSION, "drops_class"),
    (True, True, False, False): (DROP, 0, "drops_method"),
    (True, True, False, True): (REFUSE, STATUS_BAD_METHOD, "drops_method"),
    (True, True, True, False): (DISPATCH, 0, ""),
    (True, True, True, True): (DISPATCH, 0, ""),
}
"""Requests by what is known of them: the base version and, of the class, its version; anybody registered for
the class; the method; and whether a refusal of this method is answered (13.4.5, 13.4.7)."""


class Client:
    """A program on a host that sends requests and, for the ``methods`` that it is registered for, gets them.

    ``deliver(data, address) -> bool`` gives it a datagram; False: it has no room.  ``number`` is the
    dispatcher's.
    """

    def __init__(
        self,
        management_class: int,
        class_version: int,
        methods: Iterable[int],
        deliver: Callable[[bytes, Address], bool],
    ) -> None:
        self.management_class = management_class
        self.class_version = class_version
        self.methods = frozenset(methods)
        self.deliver = deliver
        self.number = 0


class Dispatcher:
    """Of queue pair ``qpn`` of port ``port_number``.  ``transmit(data, address) -> bool`` takes a datagram
    to be sent; False: too many wait.
    """

    def __init__(self, port_number: int, qpn: int, transmit: Callable[[bytes, Address], bool]) -> None:
        self.port_number = port_number
        self.qpn = qpn
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._transmit = transmit
        self._takers: dict[tuple[int, int, int], Agent | Client] = {}
        self._clients: dict[int, Client] = {}
        self._outstanding = Outstanding()
        self._next_number = 1

    # who is registered

    def register(self, taker: Agent | Client) -> None:
        """Let an agent or a client have what its class, version and methods say.

        OSError EINVAL for a class that is another queue pair's, or for methods with the R bit; EBUSY where
        another one has one of them; ENOMEM where there are too many clients.
        """
        if (taker.management_class in SUBNET_CLASSES) != (self.qpn == SUBNET_QPN):
            raise OSError(
                errno.EINVAL, f"mgmt_class = {taker.management_class:#x}: it is not queue pair {self.qpn}'s"
            )
        if any(not 0 < method < RESPONSE for method in taker.methods):
            raise OSError(
                errno.EINVAL, "methods_low, methods_high: expected 1…0x7f, a response goes to who has asked"
            )
        keys = [(taker.management_class, taker.class_version, method) for method in taker.methods]
        taken = [key for key in keys if key in self._takers]
        if taken:
            raise OSError(
                errno.EBUSY,
                f"mgmt_class = {taken[0][0]:#x}: method {taken[0][2]:#x} has an agent at this port",
            )
        if isinstance(taker, Client):
            if len(self._clients) >= MAX_CLIENTS:
                raise OSError(errno.ENOMEM, f"agent: queue pair {self.qpn} has {MAX_CLIENTS} clients at most")
            taker.number = self._next_number
            self._next_number = self._next_number % _LOW_MASK + 1  # so far on that none lives that long
            self._clients[taker.number] = taker
        self._takers.update(dict.fromkeys(keys, taker))

    def unregister(self, taker: Agent | Client) -> None:
        """It gets nothing any more, no response to what it has asked either."""
        self._takers = {key: each for key, each in self._takers.items() if each is not taker}
        if isinstance(taker, Client):
            self._clients.pop(taker.number, None)
            self._outstanding.forget(taker.number)

    def cancel(self, client: Client, header: MadHeader, destination: Address) -> None:
        """A client waits no longer for the response to what it asked there with this header."""
        key = client.number, header.transaction_id & _LOW_MASK, header.management_class
        self._outstanding.cancel(key, destination)

    def outstanding(self) -> int:
        """How many requests of clients have had no response."""
        return len(self._outstanding)

    # what arrives

    def receive(self, data: bytes, source: Address) -> None:
        """A datagram has come for this queue pair.  Raises nothing, whatever it holds."""
        self.counters["received"] += 1
        if len(data) != MAD_BYTES:
            self.counters["drops_length"] += 1
            return
        taker = self._takers.get((data[1], data[2], data[3]))
        if isinstance(taker, Client) and data[0] == BASE_VERSION and data[1] != CLASS_SUBN_DIRECTED:
            self._deliver(taker, data, source)  # as `VERDICTS` say, without a look at the rest
            return
        mad = Mad.decode(data)
        if mad.header.management_class == CLASS_SUBN_DIRECTED:
            arrived = directed_route.arrive(mad, self.port_number)
            if arrived is None:
                self.counters["drops_route"] += 1
                return
            mad, data = arrived, arrived.encode()
        if mad.header.method & RESPONSE:
            self._respond(mad, source)
        else:
            self._request(mad, source, data)

    def _request(self, mad: Mad, source: Address, data: bytes) -> None:
        """``data`` are the datagram's octets."""
        header = mad.header
        key = header.management_class, header.class_version, header.method
        taker = self._takers.get(key)
        known = taker is not None or any(each[:2] == key[:2] for each in self._takers)
        known_class = known or any(each[0] == header.management_class for each in self._takers)
        if taker is None and known and _asks_for_class(header):
            self._answer(mad.response(STATUS_OK, ClassPortInfo(class_version=header.class_version)), source)
            return
        verdict, status, counter = VERDICTS[
            header.base_version == BASE_VERSION and (known or not known_class),
            known_class,
            taker is not None,
            header.method in ANSWERED_METHODS,
        ]
        if counter:
            self.counters[counter] += 1
        if verdict == REFUSE:
            self._answer(mad.response(status), source)
        elif verdict == DISPATCH and isinstance(taker, Client):
            self._deliver(taker, data, source)
        elif verdict == DISPATCH and isinstance(taker, Agent):
            response = taker.answer(mad, source)
            if response is not None:
                self._answer(response, source)

    def _answer(self, response: Mad, source: Address) -> None:
        self.counters["answered"] += 1
        self._send(response, source)

    def _respond(self, mad: Mad, source: Address) -> None:
        """A response: to the client that asked, if one did."""
        number, low = mad.header.transaction_id >> LOW_BITS, mad.header.transaction_id & _LOW_MASK
        key = number, low, mad.header.management_class
        client = self._clients.get(number)
        high = self._outstanding.take(key, source)
        if high is None or client is None:
            self.counters["drops_unmatched"] += 1
            return
        header = replace(mad.header, transaction_id=high << LOW_BITS | low)
        self._deliver(client, replace(mad, header=header).encode(), source)

    def _deliver(self, client: Client, data: bytes, source: Address) -> None:
        if client.deliver(data, source):
            self.counters["delivered"] += 1
        else:
            self.counters["drops_client_full"] += 1

    # what is sent

    def send(self, client: Client, data: bytes, destination: Address) -> None:
        """A client sends a datagram.

        OSError EINVAL for another length, base version or class than the client's (a subnet manager sends
        both of its classes), or for a directed route that does not begin at this port; ENOBUFS: too many
        wait.
        """
        if len(data) != MAD_BYTES:
            raise OSError(errno.EINVAL, f"mad: a datagram has {MAD_BYTES} bytes, not {len(data)}")
        mad = Mad.decode(data)
        header = mad.header
        if header.base_version != BASE_VERSION:
            raise OSError(errno.EINVAL, f"base_version = {header.base_version}: expected {BASE_VERSION}")
        if header.management_class != client.management_class and not (
            {header.management_class, client.management_class} <= SUBNET_CLASSES
        ):
            raise OSError(
                errno.EINVAL, f"mgmt_class = {header.management_class:#x}: the agent is none of that class"
            )
        if not header.method & RESPONSE and header.method not in UNANSWERED_METHODS:
            mad = self._ask(client, mad, destination)
        if not self._send(mad, destination):
            raise OSError(
                errno.ENOBUFS, "mad: too many datagrams wait to be sent, or the route leads nowhere"
            )

    def _ask(self, client: Client, mad: Mad, destination: Address) -> Mad:
        """Remember who asks; the request with the client's number in its transaction ID."""
        high, low = mad.header.transaction_id >> LOW_BITS, mad.header.transaction_id & _LOW_MASK
        key = client.number, low, mad.header.management_class
        self._outstanding.add(key, high, destination, MAX_OUTSTANDING)
        return replace(mad, header=replace(mad.header, transaction_id=client.number << LOW_BITS | low))

    def _send(self, mad: Mad, destination: Address) -> bool:
        """Give a datagram to the queue pair, or to this port itself; whether it had a way and room."""
        if mad.header.management_class == CLASS_SUBN_DIRECTED:
            if directed_route.stays(mad):
                self.counters["sent"] += 1
                self.receive(mad.encode(), destination)
                return True
            leaving = directed_route.leave(mad, self.port_number)
            if leaving is None:
                self.counters["drops_route"] += 1
                return False
            mad = leaving
        return self.send_own(mad.encode(), destination)

    def send_own(self, data: bytes, destination: Address) -> bool:
        """A well-formed datagram of the port itself goes to the queue pair; whether it had a way and room."""
        if not self._transmit(data, destination):
            self.counters["drops_queue_full"] += 1
            return False
        self.counters["sent"] += 1
        return True


def _asks_for_class(header: MadHeader) -> bool:
    """Whether this is Get ClassPortInfo, which the port answers for who is registered without Get."""
    return (
        header.base_version == BASE_VERSION
        and header.method == METHOD_GET
        and header.attribute_id == ATTRIBUTE_CLASS_PORT_INFO
        and header.management_class not in SUBNET_CLASSES
    )
