"""Management datagrams for programs: what libibumad is for, on an open device.

pyverbs has nothing like it.  A program registers for a management class with a port, sends datagrams of 256
bytes and receives what comes for it; several programs share a port's queue pair 1.  ``docs/management.md``
has an example.
"""

from collections.abc import Iterable

from softhca.driver.agents import AgentHandle, MadAddress, MadArrival
from softhca.management.mad import Mad, MadHeader
from softhca.management.pending import is_request
from softhca.verbs.base import Resource, creating, read_only, require, translated
from softhca.verbs.device import Context
from softhca.verbs.pyverbs_error import PyverbsUserError

__all__ = ["Mad", "MadAddress", "MadAgent", "MadArrival", "MadHeader"]


class MadAgent(Resource):
    """A registration with port ``port`` of ``context`` for a management class: it gets requests with
    ``methods`` (none: it only asks) and the responses to what it asks.  ``entries`` datagrams have room; what
    comes while it is full is dropped.

    `PyverbsRDMAError` EBUSY: a method has another agent at this port; EPERM, EOPNOTSUPP: a class of queue
    pair 0, which the adapter keeps to itself or a RoCE port has not got.
    """

    __slots__ = ("_context", "_handle")
    context: Context = read_only("_context", "The device.")

    def __init__(
        self,
        context: Context,
        port: int,
        management_class: int,
        class_version: int = 1,
        methods: Iterable[int] = (),
        entries: int = 64,
    ) -> None:
        require(context, Context, "context")
        self._driver = context.driver
        with creating("Failed to register a management agent"):
            self._handle: AgentHandle = self._driver.register_agent(
                port, management_class, class_version, methods, entries
            )
            self._context = context
            self._opened(context)

    def _destroy(self) -> None:
        self._handle.unregister()

    def send(self, mad: Mad | bytes, to: MadAddress, timeout_ms: int = 0, retries: int = 0) -> None:
        """Send a datagram.  Of a request with ``timeout_ms`` something is received in any case: its response
        or, when none has come within so long and after as many ``retries``, itself with the status ETIMEDOUT.

        The upper half of a request's transaction ID is the adapter's on the wire; the response has the
        program's own again.  `PyverbsRDMAError` EINVAL: it cannot be sent, or class and lower half are those
        of one that waits; EAGAIN: 256 wait; ENOBUFS: the port has too many to send.
        """
        self._require_open()
        with translated("Failed to send a management datagram"):
            self._handle.send(mad.encode() if isinstance(mad, Mad) else bytes(mad), to, timeout_ms, retries)

    def receive(self, timeout_s: float | None = None) -> MadArrival | None:
        """The next datagram; None: none has come within ``timeout_s`` (0: only look; None: no limit).
        `PyverbsRDMAError` EIO when the adapter is gone.
        """
        self._require_open()
        with translated("Failed to receive a management datagram"):
            return self._handle.receive(timeout_s)

    def ask(self, request: Mad, to: MadAddress, timeout_ms: int = 1000, retries: int = 3) -> Mad:
        """Send a request and wait for its response, whichever thread receives it; what comes meanwhile that
        nobody asked for is lost.  `PyverbsRDMAError` ETIMEDOUT: nobody has answered; `PyverbsUserError`:
        there is no response to such a datagram, or no time to wait for it.
        """
        if timeout_ms <= 0 or not is_request(request.header):
            raise PyverbsUserError("what is asked is a request, and has a time-out")
        self._require_open()
        with translated("Failed to ask with a management datagram"):
            return Mad.decode(self._handle.ask(request.encode(), to, timeout_ms, retries))
