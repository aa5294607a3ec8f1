"""The local buffers of one work request: its scatter/gather list with every key looked up once."""

from array import array

import cython

from softhca.memory.regions import Region

_EACCES = cython.declare(cython.int, 13)
_EFAULT = cython.declare(cython.int, 14)


class BufferList:
    """Byte ranges of memory regions that together are one message; made once, used for one request after
    another.

    ``capacity`` elements at most; ``total_bytes`` of the message that was resolved last.
    """

    def __init__(self, capacity):
        self.generation = array("I", [0]) * max(1, capacity)
        self.work = None
        self.total_bytes = 0
        self.hint = 0
        self.hint_start = 0

    def resolve(self, work, table, pd, access):
        """Look up the keys of ``work``'s elements; False when one does not give ``pd`` the right to all
        its bytes.

        The key of an element without bytes is not looked at, for nothing is accessed.
        """
        i: cython.uint
        region: Region
        self.work = work
        self.total_bytes = 0
        self.hint = 0
        self.hint_start = 0
        for i in range(work.num_sge):
            if work.sge_length[i] == 0:
                continue
            region = table.find(work.sge_key[i], pd, work.sge_va[i], work.sge_length[i], access)
            if region is None:
                return False
            work.regions[i] = region
            self.generation[i] = region.generation
            self.total_bytes += work.sge_length[i]
        return True

    def gather(self, offset, n, address):
        """Copy ``n`` bytes from ``offset`` of the message to ``address``; 0 or −errno."""
        return self.move(offset, n, address, False)

    def scatter(self, offset, n, address):
        """Copy ``n`` bytes from ``address`` to ``offset`` of the message; 0 or −errno."""
        return self.move(offset, n, address, True)

    def move(self, offset, n, address, writing):
        """Walk from the element found last, as packets come in order; an earlier offset starts from the
        front."""
        i: cython.uint = self.hint
        start: cython.ulonglong = self.hint_start
        within: cython.ulonglong
        piece: cython.ulonglong
        region: Region
        result: cython.int
        if n > self.total_bytes or offset > self.total_bytes - n:
            return -_EFAULT
        if offset < start:
            i = 0
            start = 0
        while n:
            while offset >= start + self.work.sge_length[i]:
                start += self.work.sge_length[i]
                i += 1
            within = offset - start
            piece = self.work.sge_length[i] - within
            if piece > n:
                piece = n
            region = self.work.regions[i]
            if region.generation != self.generation[i]:
                return -_EACCES
            if writing:
                result = region.write(self.work.sge_va[i] + within, address, piece)
            else:
                result = region.read(self.work.sge_va[i] + within, address, piece)
            if result:
                return result
            offset += piece
            address += piece
            n -= piece
        self.hint = i
        self.hint_start = start
        return 0
