"""The blocks around the RQ's engine as a model, for messages: what `receive` meets on its bus.

They look after themselves: a byte written outside of what is registered for the queue pair, a packet's word
taken that is not there, or a command while a block is busy is an assertion.
"""

from __future__ import annotations

from collections import deque

from engine_blocks import Context

from softhca.adapter.remote_keys import RemoteKeyModel
from softhca.hardware.micro_registers import PRESENT

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
PAGE = 4096


class Region:
    """``va`` … ``va + length``, in the frames of ``pages``; `place` is where a byte lies."""

    def __init__(self, key, va, length, pages, pd, rights, valid=True):
        self.key, self.va, self.length, self.pages = key, va, length, pages
        self.pd, self.rights, self.valid = pd, rights, valid

    def place(self, offset):
        at = self.va % PAGE + offset
        return self.pages[at // PAGE] * PAGE + at % PAGE

    def bytes(self):
        return {self.place(offset) for offset in range(self.length)}


class MessageBlocks(Context):
    """``regions`` by key, ``memory``: bytes by address; ``rings``: words by address (descriptors).

    ``writable``: bytes that may be written at all; ``receives``: the addresses of receives' descriptors, of
    which the third word may be written, too; ``sent``: packets, as words without the ICRC.
    """

    def __init__(self, vis, regions, receives=()):
        super().__init__()
        self.receives = frozenset(receives)
        self.closed = set()  # words that the host refuses to write
        self.noted = False  # immediate data have been written, and no completion has told of them yet
        self.keys = RemoteKeyModel(vis)
        self.regions = {region.key: region for region in regions}
        self.memory, self.rings = {}, {}
        self.writable = set().union(
            *(r.bytes() for r in regions if r.valid and r.rights & (LOCAL_WRITE | REMOTE_WRITE)), set()
        )
        self.packet, self.arrived, self.begun = deque(), deque(), False
        self.carry = b""
        self.tx, self.tx_carry, self.sent = [], b"", []
        self.descriptor = deque()
        self.failed = False
        self.counts = {}
        self.completions, self.events, self.woken, self.offered = [], [], [], deque()
        self.result = self.address = 0
        self.ends = 0

    # receive FIFO

    def arrive(self, words):
        self.arrived.append(list(words))

    @property
    def quiet(self):
        return not self.packet and not self.arrived and not self.offered

    def tick(self):
        super().tick()
        if not self.packet and self.arrived:
            self.packet = deque(self.arrived.popleft())
            self.begun = False

    def read_RX_STATUS(self):
        if not self.packet:
            return 0
        return PRESENT | len(self.packet) << 16 | (len(self.packet) == 1) << 1 | (not self.begun)

    def read_RX_WORD(self):
        return self.packet[0] if self.packet else 0

    def write_RX_POP(self, value):
        assert self.packet, "pops an empty FIFO"
        self.begun = True
        if value == 2:
            self.packet.clear()
            self.carry = b""
            self.ends += 1
            return
        assert len(self.packet) > 1, "takes the ICRC for a header"
        self.packet.popleft()

    # keys, look-ups

    def write_RQ_KEY_ADDRESS(self, value):
        self.values["RQ_KEY_DATA"] = self.keys.read(value)

    def write_RQ_KEY_DATA(self, value):
        self.keys.write(self.values["RQ_KEY_ADDRESS"], value)

    def write_TPT_ACCESS(self, value):
        assert value & 0x100
        region = self.regions.get(self.values["TPT_INDEX"])
        offset = (self.values["TPT_VA_HIGH"] << 32 | self.values["TPT_VA"]) - (region.va if region else 0)
        allowed = (
            region is not None and region.valid and region.pd == self.values["TPT_PD"] != 0
            and not value & 0x7F & ~region.rights
            and offset >= 0 and offset + self.values["TPT_LENGTH"] <= region.length
        )  # fmt: skip
        self.result = 0 if allowed else 3
        # where the last byte of an empty range would be, nothing is
        self.address = region.place(offset) if allowed and offset < region.length else 0

    def read_TPT_RESULT(self):
        return PRESENT | self.result

    def read_TPT_ADDRESS(self):
        return self.address & 0xFFFFFFFF

    def read_TPT_ADDRESS_HIGH(self):
        return self.address >> 32

    # host memory

    def write_HOST_COMMAND(self, value):
        address = self.values["HOST_ADDRESS_HIGH"] << 32 | self.values["HOST_ADDRESS"]
        command, count = value & 0xFF, value >> 8
        self.failed = False
        if command == 2:
            assert address - 8 in self.receives, f"writes {address:#x}, which is no receive's immediate data"
            self.failed = address not in self.rings or address in self.closed
            if not self.failed:
                self.rings[address] = self.values["HOST_DATA"]
                self.noted = True
        elif command == 3:
            self.failed = address % 4 != 0 or address not in self.rings
            words = [] if self.failed else [self.rings.get(address + 4 * i, 0) for i in range(count)]
            self.descriptor = deque(words)
        elif command == 4:
            self.tx_carry += bytes(self.memory.get(address + i, 0) for i in range(count))
            assert 0 < count <= PAGE
        elif command == 5:
            self._take(address, count)
        else:
            assert command == 6
            data = self.tx_carry + bytes(-len(self.tx_carry) % 4)
            self.tx += [int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data), 4)]
            self._end()

    def _take(self, address, count):
        assert 0 < count <= PAGE
        while len(self.carry) < count and len(self.packet) > 1:
            self.carry += self.packet.popleft().to_bytes(4, "big")
        if len(self.carry) < count:
            self.failed = True
            return
        for i in range(count):
            assert address + i in self.writable, f"writes {address + i:#x}, which nobody registered"
            self.memory[address + i] = self.carry[i]
        self.carry = self.carry[count:]

    def read_HOST_STATUS(self):
        return self.failed << 1

    def read_HOST_DESCRIPTOR(self):
        return PRESENT if self.descriptor else 0

    def read_HOST_DESCRIPTOR_WORD(self):
        return self.descriptor[0] if self.descriptor else 0

    def write_HOST_DESCRIPTOR_POP(self, value):
        if self.descriptor:
            self.descriptor.popleft()

    # what leaves

    def read_TX_STATUS(self):
        return 512 << 16

    def write_TX_PUSH(self, value):
        if value == 2:
            self.tx, self.tx_carry = [], b""
            return
        self.tx.append(self.values["TX_WORD"])
        if value & 1:
            self._end()

    def _end(self):
        assert self.tx[1] >> 16 == len(self.tx) + 1, "a link header with another length"
        self.sent.append(self.tx)
        self.tx, self.tx_carry = [], b""

    # queues

    def read_DOORBELL_QP(self):
        qp = self.values["DOORBELL_QP"]
        return qp | (PRESENT if self.counts.get(qp) else 0)

    def read_DOORBELL_COUNT(self):
        return self.counts.get(self.values["DOORBELL_QP"], 0)

    def read_DOORBELL_POP(self):
        return 0

    def write_DOORBELL_POP(self, value):
        qp = self.values["DOORBELL_QP"]
        assert self.counts.get(qp), "a receive is done that was not posted"
        self.counts[qp] -= 1

    def read_CQ_PUSH(self):
        return 0

    def write_CQ_PUSH(self, value):
        status = self.values["CQ_STATUS"]
        assert bool(status & 0x80) == self.noted, "immediate data that did not come, or are not told of"
        self.noted = False
        self.completions.append((self.values["CQ_QP"], self.values["CQ_WORK"], status & 0xFF, status >> 8))

    def write_EVENT_PUSH(self, value):
        self.events.append(value)

    def read_WAKE(self):
        return 0

    def write_WAKE(self, value):
        if value >> 31:
            if value & 0xFFFFFF not in self.offered:
                self.offered.append(value & 0xFFFFFF)
        else:
            self.woken.append(value)

    def read_SCHEDULER_NEXT(self):
        return PRESENT | self.offered[0] if self.offered else 0

    def write_SCHEDULER_TAKE(self, value):
        self.offered.popleft()
