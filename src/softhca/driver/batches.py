"""A batch of sends that a program names one after the other, and posts as a chain."""

from softhca.driver.posting import SEND_INLINE
from softhca.driver.turns import Turn
from softhca.driver.work_requests import SendRequest

_NOT_INLINE = ~SEND_INLINE


class SendBatch(Turn):
    """The requests of one thread's batch, as `QueuePairPoster.post_chain` takes them.

    What is asked of it by another thread than the batch's, or outside a batch, is None.
    """

    __slots__ = ("_requests",)

    def __init__(self):
        Turn.__init__(self)
        self._requests = []

    def add(self, opcode, wr_id, flags, rkey, remote_addr):
        """One request more, without data; its other values are 0.

        ``flags`` are ``ibv_send_flags``; whether it is inline is said by its ``sges``, not by them.
        """
        request: SendRequest
        if not self.mine():
            return None
        request = SendRequest()
        request.opcode = opcode
        request.wr_id = wr_id
        request.send_flags = int(flags) & _NOT_INLINE
        request.remote_rkey = rkey
        request.remote_addr = remote_addr
        request.imm_data = request.compare_add = request.swap = 0
        request.remote_qpn = request.remote_qkey = 0
        request.ah = request.following = None
        request.sges = ()
        self._requests.append(request)
        return request

    def last(self):
        """The request that was added last; None where there is none."""
        return self._requests[len(self._requests) - 1] if self._requests and self.mine() else None

    def chain(self):
        """The first request, from which one leads to the next; None where there is none."""
        request: SendRequest
        following: SendRequest = None
        if not self.mine():
            return None
        for request in reversed(self._requests):
            request.following = following
            following = request
        return following

    def drop(self):
        """End the batch, if it is this thread's."""
        request: SendRequest
        if not self.mine():
            return
        for request in self._requests:  # who frees a long chain would free it in as many nested calls
            request.following = None
        self._requests = []
        self.end()
