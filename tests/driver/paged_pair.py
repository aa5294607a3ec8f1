"""Two ends in virtual time, one of which has pageable memory registered."""

import contextlib

import pytest

from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.driver.paging import PageableMemory
from softhca.machine.primitives import load64
from softhca.memory.bits import PAGE_BYTES
from softhca.testing.ends import ALL_RIGHTS, QKEY, UD, WRITE, End, connect, post
from softhca.testing.network import Network

LENGTH = 8 * PAGE_BYTES
PATTERN = bytes(i * 7 % 251 for i in range(LENGTH))
VA = 0x50_0000
RNR = {"min_rnr_timer": 1, "rnr_retry": 7, "timeout": 14, "retry_cnt": 7}


@contextlib.contextmanager
def fails(code):
    with pytest.raises(DriverError) as caught:
        yield
    assert caught.value.errno == code


class Pair:
    """Two ends; the right one's peer memory is pageable, and registered with its adapter."""

    def __init__(self, kind=2, rights=ALL_RIGHTS):
        self.network = Network()
        self.left, self.right = End(self.network.add(1)), End(self.network.add(2))
        self.qps = self.left.qp(kind), self.right.qp(kind)
        if kind == UD:
            for qp in self.qps:
                services.start_datagrams(qp, QKEY)
        else:
            connect((self.left, self.qps[0]), (self.right, self.qps[1]), kind, **(RNR if kind == 2 else {}))
        self.left.memory[:LENGTH] = PATTERN
        self.memory = PageableMemory(LENGTH, rights, pager=False)
        self.key = self.register(self.right)
        self.sent = 0

    def register(self, end, access=ALL_RIGHTS):
        return end.device.reg_paged(end.pd, self.memory, access, VA)

    def write(self, length=LENGTH, to=0):
        """Post a write of the pattern from left to the pageable memory."""
        self.sent += 1
        post(self.qps[0], WRITE, [self.left.sge(0, length)], wr_id=self.sent, va=VA + to, rkey=self.key.rkey)

    def statuses(self, count=1):
        return [completion.status for completion in self.left.poll(count)]

    def word(self, place):
        """A word of the header or the table."""
        return load64(self.memory._memory.mapping.base + place)

    def some_rounds(self, ns=3_000_000):
        """Let time pass, whatever happens."""
        self.network.run(lambda: False, ns)

    def close(self):
        self.network.close()
        self.memory.close()
