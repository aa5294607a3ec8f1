# amaranth: UnusedElaboratable=no
"""The host interface: turns, and what an engine gets, against a host's memory that takes its time."""

import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from hardware_bench import Bench
from host_memory import HostMemory
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.hardware.host_interface import HostArbiter, HostPort
from softhca.hardware.ports import HostBus

PORTS = 3
LIMIT = 1 << 43
BUSY, FAILED = 1, 2


class Hosting(wiring.Component):
    """Three engines' ports and the arbiter."""

    def __init__(self):
        self.ports = [HostPort() for _ in range(PORTS)]
        self.arbiter = HostArbiter(PORTS)
        super().__init__({"host": Out(HostBus())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.arbiter = self.arbiter
        for i, port in enumerate(self.ports):
            m.submodules[f"port{i}"] = port
            wiring.connect(m, port.bus, self.arbiter.request[i])
        wiring.connect(m, self.arbiter.host, wiring.flipped(self.host))
        return m


BENCH = Bench(Hosting())
ADDRESSES = st.one_of(
    st.integers(0, 7).map(lambda i: 4 * i),
    st.sampled_from([0x1_0000_0000, LIMIT - 4, LIMIT - 8, LIMIT, (1 << 44) - 4, (1 << 44) - 8, 2, 5]),
)
OPERATIONS = st.tuples(
    ADDRESSES,
    st.one_of(
        st.sampled_from([1, 1, 2, 2, 0, 4, 0x101, 0x102]),
        st.integers(0, 18).map(lambda n: 3 | n << 8),
    ),
    st.integers(0, 0xFFFFFFFF),
)


class PortModel:
    """An engine's port: its registers, its commands by a memory."""

    def __init__(self):
        self.data = self.status = 0
        self.descriptor = []

    def begins(self, address, command):
        """Whether there is something to do on the bus."""
        if command & 0xFF == 3:
            n = command >> 8
            fine = 1 <= n <= 16 and address + 4 * n <= 1 << 44
        else:
            fine = command in (1, 2)
        fine = fine and address % 4 == 0
        self.status = BUSY if fine else FAILED
        if fine and command & 0xFF == 3:
            self.descriptor = []
        return fine

    def ends(self, address, command, memory):
        """Do it."""
        count = command >> 8 if command & 0xFF == 3 else 1
        addresses = [address + 4 * i for i in range(count)]
        self.status = FAILED if any(place >= LIMIT for place in addresses) else 0
        if command == 2 and not self.status:
            memory[address] = self.data
        elif command == 1 and not self.status:
            self.data = memory.get(address, 0)
        elif command & 0xFF == 3 and not self.status:
            self.descriptor = [memory.get(place, 0) for place in addresses]


class Driver:
    """Clocks with a host that answers."""

    def __init__(self, ctx, memory):
        self.ctx, self.memory = ctx, memory
        self.owners = []

    async def tick(self):
        await self.ctx.tick()
        self.memory.answer(self.ctx, BENCH.block.host)
        if self.ctx.get(BENCH.block.host.done):
            self.owners.append(self.ctx.get(BENCH.block.arbiter.owner))

    async def write(self, register, data):
        self.ctx.set(register.strobe, 1)
        self.ctx.set(register.data, data)
        await self.tick()
        self.ctx.set(register.strobe, 0)

    async def command(self, port, address, command, data):
        await self.write(port.write_host_address, address & 0xFFFFFFFF)
        await self.write(port.write_host_address_high, address >> 32)
        await self.write(port.write_host_data, data)
        await self.write(port.write_host_command, command)

    async def rest(self, port):
        for _ in range(200):
            if not self.ctx.get(port.host_status) & BUSY:
                return
            await self.tick()
        raise AssertionError("the port does not come to rest")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, PORTS - 1), OPERATIONS), max_size=12),
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
)
def test_ports_do_what_their_model_does(operations, latencies):
    host = HostMemory(latencies, LIMIT)
    memory, models = {}, [PortModel() for _ in range(PORTS)]

    async def script(ctx):
        driver = Driver(ctx, host)
        for which, (address, command, data) in operations:
            port, model = BENCH.block.ports[which], models[which]
            await driver.command(port, address, command, data)
            model.data = data
            before = len(host.transactions)
            begins = model.begins(address, command)
            if begins:
                assert before or ctx.get(port.host_status) & BUSY or host.transactions
                await driver.rest(port)
                model.ends(address, command, memory)
            assert ctx.get(port.host_status) == model.status
            assert ctx.get(port.host_data) == model.data
            assert ctx.get(port.host_address) | ctx.get(port.host_address_high) << 32 == address
            assert bool(ctx.get(port.host_descriptor) >> 31) == bool(model.descriptor)
        for port, model in zip(BENCH.block.ports, models, strict=True):
            for i, word in enumerate(model.descriptor):
                assert ctx.get(port.host_descriptor) == 1 << 31 | (i + 1 == len(model.descriptor))
                assert ctx.get(port.host_descriptor_word) == word
                await driver.write(port.write_host_descriptor_pop, 0)
            assert ctx.get(port.host_descriptor) == 0
            await driver.write(port.write_host_descriptor_pop, 0)
            assert ctx.get(port.host_descriptor) == 0
        assert host.words == memory

    BENCH.run(script)


def test_nobody_waits_for_more_than_one_transaction_of_each_other():
    host = HostMemory((1, 0, 2))

    async def script(ctx):
        driver = Driver(ctx, host)
        ports = BENCH.block.ports
        for i, port in enumerate(ports):
            await driver.write(port.write_host_address, 0x100 * i)
        for port in ports:  # in one clock: all three
            ctx.set(port.write_host_command.data, 3 | 5 << 8)
            ctx.set(port.write_host_command.strobe, 1)
        await driver.tick()
        for port in ports:
            ctx.set(port.write_host_command.strobe, 0)
        for port in ports:
            await driver.rest(port)
        assert driver.owners == [0, 1, 2] * 5
        assert [address for _, address, _, _ in host.transactions[:6]] == [0, 0x100, 0x200, 4, 0x104, 0x204]

    BENCH.run(script)


def test_a_command_while_busy_is_ignored_and_registers_may_change_under_it():
    host = HostMemory((6,))
    host.words[0x40] = 7

    async def script(ctx):
        driver, port = Driver(ctx, host), BENCH.block.ports[1]
        await driver.command(port, 0x40, 1, 0)
        await driver.command(port, 0x80, 2, 99)
        await driver.rest(port)
        assert (ctx.get(port.host_data), ctx.get(port.host_status)) == (7, 0)
        assert host.transactions == [(0, 0x40, 7, False)]

    BENCH.run(script)


@pytest.mark.parametrize(
    ("command", "words"),
    [(3, 0), (0x103, 1), (0x1003, 16), (0x1103, 0), (0x2103, 0), (0x8103, 0), (0x01000103, 0), (0x10003, 0)],
)
def test_a_descriptor_has_one_to_sixteen_words(command, words):
    host = HostMemory((0,))

    async def script(ctx):
        driver, port = Driver(ctx, host), BENCH.block.ports[2]
        await driver.command(port, 0x40, command, 0)
        await driver.rest(port)
        assert ctx.get(port.host_status) == (0 if words else FAILED)
        assert [address for _, address, _, _ in host.transactions] == [0x40 + 4 * i for i in range(words)]

    BENCH.run(script)


def test_a_descriptor_that_the_host_refuses_midway_is_not_seen():
    host = HostMemory((0,), LIMIT)

    async def script(ctx):
        driver, port = Driver(ctx, host), BENCH.block.ports[0]
        await driver.command(port, LIMIT - 8, 3 | 4 << 8, 0)
        for _ in range(8):
            assert ctx.get(port.host_descriptor) == 0
            await driver.tick()
        assert ctx.get(port.host_status) == FAILED
        assert len(host.transactions) == 3

    BENCH.run(script)


@pytest.mark.parametrize("requesters", [0, 17])
def test_an_arbiter_that_cannot_be_is_refused(requesters):
    with pytest.raises(ValueError, match="1…16"):
        HostArbiter(requesters)
