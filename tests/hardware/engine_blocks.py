"""The blocks around an engine as models: what microcode meets on its bus, by name of register."""

from collections import deque

from softhca.adapter.remote_keys import RemoteKeyModel
from softhca.hardware.micro_registers import PRESENT, REGISTERS

NAMES = {register.number: register.name for register in REGISTERS}
DOMAIN_SHIFT, RIGHTS_SHIFT, ENTRY_VALID = 32, 56, 1 << 63


class Blocks:
    """Registers by methods ``read_NAME`` and ``write_NAME``; a register without one only keeps its value."""

    def __init__(self):
        self.values = dict.fromkeys(NAMES.values(), 0)
        self.clock = 0

    def read(self, number):
        name = NAMES.get(number)
        if name is None:
            return 0
        method = getattr(self, f"read_{name}", None)
        return self.values[name] if method is None else method()

    def write(self, number, value):
        name = NAMES[number]
        self.values[name] = value
        method = getattr(self, f"write_{name}", None)
        if method is not None:
            method(value)

    def tick(self):
        self.clock += 1


class Context(Blocks):
    """Sixteen words a queue pair."""

    def __init__(self):
        super().__init__()
        self.context = {}

    def read_CONTEXT_DATA(self):
        return self.context.get(self.values["CONTEXT_ADDRESS"], 0)

    def write_CONTEXT_DATA(self, value):
        self.context[self.values["CONTEXT_ADDRESS"]] = value


class ReceiveBlocks(Context):
    """Receive FIFO, translation (``table``: entries by index; answers after ``latency`` clocks), key memory.

    ``seen``: what `watch` gave whenever a packet was dropped.
    """

    def __init__(self, keys=None, table=None, latency=3):
        super().__init__()
        self.keys = RemoteKeyModel(4) if keys is None else keys
        self.table = {} if table is None else table
        self.latency = latency
        self.packet = deque()
        self.waiting = deque()
        self.bad = self.first = False
        self.answer = None  # the clock from which the look-up's result is there, and the result
        self.seen = []
        self.events = []
        self.watch = lambda: None

    def arrive(self, words, bad=False):
        self.waiting.append((list(words), bad))

    def tick(self):
        super().tick()
        if not self.packet and self.waiting:
            words, self.bad = self.waiting.popleft()
            self.packet = deque(words)
            self.first = True

    @property
    def quiet(self):
        return not self.packet and not self.waiting

    def read_RX_STATUS(self):
        last = len(self.packet) == 1
        return (PRESENT | self.first | last << 1 | self.bad << 2) if self.packet else 0

    def read_RX_WORD(self):
        return self.packet[0] if self.packet else 0

    def write_RX_POP(self, value):
        assert value in (1, 2)
        assert self.packet, "pops an empty FIFO"
        self.first = False
        if value == 1:
            self.packet.popleft()
            assert self.packet, "takes the ICRC for a header"
        else:
            self.packet.clear()
            self.seen.append(self.watch())

    def write_RQ_KEY_ADDRESS(self, value):
        self.values["RQ_KEY_DATA"] = self.keys.read(value)

    def write_RQ_KEY_DATA(self, value):
        self.keys.write(self.values["RQ_KEY_ADDRESS"], value)

    def write_TPT_ACCESS(self, value):
        entry = self.table.get(self.values["TPT_INDEX"], 0)
        pd, rights = entry >> DOMAIN_SHIFT & 0xFFFFFF, entry >> RIGHTS_SHIFT & 0x7F
        allowed = entry & ENTRY_VALID and pd == self.values["TPT_PD"] and not value & ~rights
        self.answer = self.clock + self.latency, PRESENT | (0 if allowed else 9)

    def read_TPT_RESULT(self):
        ready, result = self.answer
        return result if self.clock > ready else 0

    def write_EVENT_PUSH(self, value):
        self.events.append(value)


def packet(opcode, qp, psn, *, key=None, grh=False, version=0, link_next=None, payload=2, flags=0):
    """A packet's words, LRH first, some word for the ICRC last."""
    link_next = (3 if grh else 2) if link_next is None else link_next
    words = [link_next << 16 | 0x0001, 0x00000000]
    words += [0x60000000 + index for index in range(10)] if grh else []
    words += [opcode << 24 | version << 16 | 0xFFFF, flags << 24 | qp, flags << 24 | psn]
    words += [0xAAAA0000, 0xBBBB0000, key, 4 * payload] if key is not None else []
    return words + list(range(payload)) + [0xCCCCCCCC]


class SendBlocks(Context):
    """Scheduler, doorbells, host interface, completions, translation, remote-key manager; ``latencies``:
    clocks that host, completion engine and doorbell manager take in turn.

    ``words``: host memory by byte address; ``limit``: where it ends.  The page table begins at ``table``.
    """

    def __init__(self, keys, latencies=(2,), table=0x10000, entries=64, limit=0x20000):
        super().__init__()
        self.keys = keys
        self.latencies = latencies
        self.step = 0
        self.table, self.entries, self.limit = table, entries, limit
        self.words = {}
        self.fails = frozenset()  # further addresses that the host refuses
        self.ready = dict.fromkeys(("host", "cq", "doorbell", "tpt", "wake"), 0)
        self.failed = False
        self.result = 0
        self.descriptor = deque()
        self.progress = 0  # of the RQ's engine
        self.queue = deque()
        self.counts = {}
        self.taken = []
        self.put_off = []
        self.woken = False
        self.completions = []

    def post(self, qp, count):
        """A host rings."""
        if not self.counts.get(qp):
            self.queue.append(qp)
        self.counts[qp] = self.counts.get(qp, 0) + count

    @property
    def quiet(self):
        return not self.queue and not any(self.counts.values()) and not self.keys.busy

    def tick(self):
        super().tick()
        self.keys.step()

    def _takes_time(self, who):
        assert self.clock >= self.ready[who], f"{who} is busy"
        self.step += 1
        self.ready[who] = self.clock + 1 + self.latencies[self.step % len(self.latencies)]

    def _busy(self, who):
        return int(self.clock < self.ready[who])

    # scheduler and doorbells

    def read_SCHEDULER_NEXT(self):
        return PRESENT | self.queue[0] if self.queue else 0

    def write_SCHEDULER_TAKE(self, value):
        assert value == 0
        qp = self.queue.popleft()
        if self.woken:  # it has asked for a later turn
            self.put_off.append(qp)
            self.woken = False
        else:
            self.taken.append(qp)

    def read_WAKE(self):
        return self._busy("wake")

    def write_WAKE(self, value):
        self._takes_time("wake")
        assert value == self.queue[0]
        self.queue.append(value)
        self.woken = True

    def read_DOORBELL_QP(self):
        qp = self.values["DOORBELL_QP"]
        return qp | (PRESENT if self.counts.get(qp) else 0)

    def read_DOORBELL_COUNT(self):
        return self.counts.get(self.values["DOORBELL_QP"], 0)

    def read_DOORBELL_POP(self):
        return self._busy("doorbell")

    def write_DOORBELL_POP(self, value):
        self._takes_time("doorbell")
        qp = self.values["DOORBELL_QP"]
        self.counts[qp] -= 1
        if self.counts[qp]:
            self.queue.append(qp)

    # host memory

    def write_HOST_COMMAND(self, value):
        self._takes_time("host")
        address = self.values["HOST_ADDRESS_HIGH"] << 32 | self.values["HOST_ADDRESS"]
        count = value >> 8 if value & 0xFF == 3 else 1
        addresses = [address + 4 * index for index in range(count)]
        assert address % 4 == 0
        self.failed = addresses[-1] >= self.limit or bool(self.fails & set(addresses))
        if self.failed:
            return
        if value == 2:
            self.words[address] = self.values["HOST_DATA"]
        else:
            assert value & 0xFF == 3
            self.descriptor = deque(self.words.get(one, 0) for one in addresses)

    def read_HOST_STATUS(self):
        return self._busy("host") or self.failed << 1

    def read_HOST_DESCRIPTOR(self):
        return (PRESENT | (len(self.descriptor) == 1)) if self.descriptor else 0

    def read_HOST_DESCRIPTOR_WORD(self):
        return self.descriptor[0] if self.descriptor else 0

    def write_HOST_DESCRIPTOR_POP(self, value):
        if self.descriptor:
            self.descriptor.popleft()

    # translation

    def write_TPT_ACCESS(self, value):
        self._takes_time("tpt")
        index = self.values["TPT_INDEX"]
        upper = self.words.get(self.table + 8 * index + 4, 0)
        valid = index < self.entries and upper >> 31 and upper & 0xFFFFFF == self.values["TPT_PD"]
        self.result = 0 if valid else 3

    def read_TPT_RESULT(self):
        return 0 if self._busy("tpt") else PRESENT | self.result

    def read_TPT_ENTRY(self):
        return self.table + 8 * self.values["TPT_INDEX"] & 0xFFFFFFFF

    def read_TPT_ENTRY_HIGH(self):
        return self.table + 8 * self.values["TPT_INDEX"] >> 32

    # receive FIFO

    def read_RX_PROGRESS(self):
        return self.progress

    # completions

    def read_CQ_PUSH(self):
        return self._busy("cq")

    def write_CQ_PUSH(self, value):
        self._takes_time("cq")
        entry = (self.values["CQ_QP"], self.values["CQ_WORK"], self.values["CQ_STATUS"], value)
        self.completions.append(entry)

    # remote-key manager

    def write_RMB_START(self, value):
        assert value == 1
        assert not self.keys.busy, "starts a search while one is under way"
        self.keys.start(self.values["RMB_PD"], self.values["RMB_KEY"])

    def read_RMB_DONE(self):
        return int(not self.keys.busy)
