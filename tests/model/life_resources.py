"""What the machine looks at after each call, and its rules about domains, handles and regions."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from life_model import (
    ATTRIBUTES,
    ERR,
    FLUSHED,
    GUARD_BYTES,
    KEEPER_BYTES,
    LOCAL_WRITE,
    REMOTE_ATOMIC,
    REMOTE_WRITE,
    CompletionQueue,
    Domain,
    Keys,
    Pair,
    Region,
    SharedQueue,
)
from traffic import wait_until

from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, AHAttr, GlobalRoute
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP

NAMES = ("life0", "life1")
MOST = {"domains": 6, "regions": 7, "cqs": 6, "shared": 4, "pairs": 7, "handles": 4}
EVERYTHING = 15
SIDES = st.integers(0, 1)
RIGHTS = st.sampled_from((0, 1, 3, 5, 7, 9, 15, 15, 15))
LENGTHS = st.sampled_from((1, 7, 8, 200, 4096, 5000, 12_000))
STARTS = st.sampled_from((GUARD_BYTES, 72, 101, 4000, 4096))


class ResourceRules(RuleBasedStateMachine):
    """Contexts on two embedded devices, everything made on them, and what the model knows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = Keys()
        self.domains: list[Domain] = []
        self.regions: list[Region] = []
        self.favourite: Region | None = None  # made or changed last, of most interest
        self.cqs: list[CompletionQueue] = []
        self.shared: list[SharedQueue] = []
        self.pairs: list[Pair] = []
        self.handles: list[tuple[Domain, AH]] = []
        self.closed: list[object] = []
        self.expected: dict[CompletionQueue, list[tuple[int, int]]] = {}
        self.wr_id = 0
        self.connections = 0
        self.contexts = [Context(name=name) for name in NAMES]
        self.gids = [context.query_gid(1, 0) for context in self.contexts]
        self.mtu = self.contexts[0].query_port(1).active_mtu

    # looking

    def room(self, name: str) -> bool:
        """Whether one more of a kind is wanted."""
        return len(getattr(self, name)) < MOST[name]

    def counts(self) -> list[dict[str, int]]:
        """What the adapters say they hold."""
        return [devices.find(name).resources() for name in NAMES]

    def refused(self, code: int, call: Callable[[], object], *watched: Callable[[], object]) -> None:
        """``call`` is refused with an errno, and everything is as before."""
        before = self.counts(), [look() for look in watched]
        with pytest.raises((PyverbsRDMAError, DriverError)) as caught:
            call()
        error = caught.value
        assert (error.errno if isinstance(error, DriverError) else error.error_code) == code, error
        assert (self.counts(), [look() for look in watched]) == before

    @staticmethod
    def attributes_of(pair: Pair | QP) -> dict[str, object]:
        """All that a query says."""
        qp = pair.thing if isinstance(pair, Pair) else pair
        attr, _ = qp.query(e.IBV_QP_STATE)
        found = {name: getattr(attr, name) for name in ATTRIBUTES.values() if name != "ah_attr"}
        found.update(qp_state=attr.qp_state, sq_draining=attr.sq_draining, ah_attr=attr.ah_attr.as_dict())
        return found

    @staticmethod
    def keys_of(region: Region) -> tuple[int, ...]:
        """What a region says of itself."""
        mr = region.thing
        return mr.lkey, mr.rkey, mr.buf, mr.length

    @invariant()
    def memory_holds_what_it_must_and_not_a_byte_around_it_changed(self) -> None:
        for region in self.regions:
            assert region.actual() == region.content

    @invariant()
    def the_adapters_hold_exactly_what_was_made(self) -> None:
        for side, found in enumerate(self.counts()):
            own = [region for region in self.regions if region.domain.side == side]
            assert found == {
                "PD": sum(domain.side == side for domain in self.domains),
                "MR": len(own),
                "ARENA": sum(not region.host for region in own),
                "CQ": sum(cq.side == side for cq in self.cqs),
                "SRQ": sum(srq.domain.side == side for srq in self.shared),
                "QP": sum(pair.side == side for pair in self.pairs),
                "AH": sum(domain.side == side for domain, _ in self.handles),
                "MW": 0,
                "DM": 0,
                "FAST_MR": 0,
                "AGENT": 0,
                "XRCD": 0,
                "CM": 0,
                "EEC": 0,
                "RDD": 0,
                "FLOW": 0,
                "RWQ_IND_TABLE": 0,
                "WQ": 0,
            }

    # completions

    def expect(self, cq: CompletionQueue, wr_id: int, status: int) -> None:
        """A completion must come, after those that this queue waits for already."""
        self.expected.setdefault(cq, []).append((wr_id, status))

    def settle(self) -> None:
        """Exactly what is expected comes, in order queue pair by queue pair, and nothing else."""
        found: dict[CompletionQueue, list[tuple[int, int]]] = {cq: [] for cq in self.cqs}

        def complete() -> bool:
            for cq, entries in found.items():
                entries.extend((wc.wr_id, wc.status) for wc in cq.thing.poll(16)[1])
            return all(len(found[cq]) >= len(entries) for cq, entries in self.expected.items())

        ends = [Driven(context) for context in self.contexts]
        wait_until(complete, *ends)
        for _ in range(2):
            for context in self.contexts:
                context.progress()
            complete()
        wanted, self.expected = self.expected, {}
        for cq, entries in found.items():
            assert sorted(entries) == sorted(wanted.get(cq, [])), (cq, entries, wanted.get(cq))

    def next_id(self) -> int:
        """Another work request's number."""
        self.wr_id += 1
        return self.wr_id

    def fail(self, pair: Pair) -> None:
        """The queue pair is in error: its receives come back flushed, shared ones stay."""
        if pair.state != ERR and pair.shared is None:
            while pair.receives.waiting:
                self.expect(pair.recv_cq, pair.receives.waiting.popleft()[0], FLUSHED)
        pair.state = ERR
        pair.part()

    # domains and handles

    @precondition(lambda self: self.room("domains"))
    @rule(side=SIDES)
    def new_domain(self, side: int) -> None:
        self.domains.append(Domain(side, PD(self.contexts[side])))

    @rule(data=st.data(), kind=st.sampled_from(("domain", "completion queue", "shared queue")))
    def what_is_in_use_is_busy(self, data: st.DataObject, kind: str) -> None:
        """Under the verbs, which close children first, the device refuses to free what others stand on."""
        users = [*self.regions, *self.shared, *self.pairs]
        frees: list[Callable[[], object]] = []
        if kind == "domain":
            domains = {id(user.domain): user.domain for user in users}
            domains.update((id(domain), domain) for domain, _ in self.handles)
            for domain in domains.values():
                free = self.contexts[domain.side].driver.dealloc_pd
                frees.append(partial(free, domain.thing.handle))
        elif kind == "completion queue":
            frees = [
                each.thing.handle.destroy for pair in self.pairs for each in (pair.send_cq, pair.recv_cq)
            ]
        else:
            frees = [pair.shared.thing.handle.destroy for pair in self.pairs if pair.shared is not None]
        if frees:
            self.refused(errno.EBUSY, data.draw(st.sampled_from(frees)))

    @precondition(lambda self: len(self.domains) > 4)
    @rule(data=st.data())
    def close_domain_with_all_that_is_in_it(self, data: st.DataObject) -> None:
        domain = data.draw(st.sampled_from(self.domains))
        domain.thing.close()
        for region in [region for region in self.regions if region.domain is domain]:
            self.forget_region(region)
        gone = [srq for srq in self.shared if srq.domain is domain]
        for pair in [pair for pair in self.pairs if pair.domain is domain or pair.shared in gone]:
            self.forget_pair(pair)
        self.shared = [srq for srq in self.shared if srq not in gone]
        self.handles = [(own, ah) for own, ah in self.handles if own is not domain]
        self.domains.remove(domain)
        self.closed.append(lambda: domain.thing.number)

    @precondition(lambda self: self.domains and self.room("handles"))
    @rule(data=st.data(), wrong=st.sampled_from((None, None, "dgid", "global", "index", "port", "version")))
    def new_handle(self, data: st.DataObject, wrong: str | None) -> None:
        domain = data.draw(st.sampled_from(self.domains))
        attr = self.vector(1 - domain.side)
        if wrong == "dgid":
            attr.dgid = ":".join(["0000"] * 8)
        elif wrong == "global":
            attr.is_global = 0
        elif wrong == "index":
            attr.sgid_index = 4  # behind the table
        elif wrong == "port":
            attr.port_num = 2
        elif wrong == "version":
            attr.dgid = ":".join(["2001"] * 8)
        if wrong is None:
            self.handles.append((domain, AH(domain.thing, attr=attr)))
        else:
            self.refused(errno.EINVAL, lambda: AH(domain.thing, attr=attr))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def close_handle(self, data: st.DataObject) -> None:
        own = data.draw(st.sampled_from(self.handles))
        own[1].close()
        self.handles.remove(own)
        self.closed.append(lambda: own[1].number)

    def vector(self, side: int) -> AHAttr:
        """The address vector that leads to a side."""
        return AHAttr(is_global=1, port_num=1, gr=GlobalRoute(dgid=self.gids[side], hop_limit=64))

    @precondition(lambda self: self.closed)
    @rule(data=st.data())
    def what_is_closed_is_the_callers_error(self, data: st.DataObject) -> None:
        use = data.draw(st.sampled_from(self.closed))
        before = self.counts()
        with pytest.raises(PyverbsUserError):
            use()
        assert self.counts() == before

    # regions

    def register(self, domain: Domain, access: int, start: int, length: int, host: bool) -> None:
        region = Region(domain, access, start, length, len(self.keys.dead) + len(self.keys.live), host)
        if host:
            region.thing = MR(domain.thing, length, access)
        else:
            region.thing = MR(domain.thing, length, access, address_of(region.keeper) + start)
        assert region.thing.length == length
        region.va = region.address
        self.keys.enter(region, region.thing.rkey)
        self.regions.append(region)
        self.favourite = region

    @precondition(lambda self: self.domains and self.room("regions"))
    @rule(data=st.data(), access=RIGHTS, start=STARTS, length=LENGTHS, host=st.booleans())
    def new_region(self, data: st.DataObject, access: int, start: int, length: int, host: bool) -> None:
        self.register(data.draw(st.sampled_from(self.domains)), access, start, length, host)

    @precondition(lambda self: self.domains and self.room("regions"))
    @rule(data=st.data(), start=STARTS, length=LENGTHS, byte=st.integers(0, 255))
    def new_region_of_a_part_of_a_buffer_under_another_address(
        self, data: st.DataObject, start: int, length: int, byte: int
    ) -> None:
        domain = data.draw(st.sampled_from(self.domains))
        region = Region(domain, EVERYTHING, start, length, byte, False)
        part = memoryview(region.keeper)[start : start + length]
        region.va = (byte + 1) << 40 | byte
        region.thing = MR(domain.thing, 0, EVERYTHING, buffer=part, iova=region.va)
        self.keys.enter(region, region.thing.rkey)
        self.regions.append(region)
        self.favourite = region

    @precondition(lambda self: self.domains)
    @rule(data=st.data(), access=st.sampled_from((REMOTE_WRITE, REMOTE_ATOMIC, 6, 1 << 11, 1 << 12)))
    def rights_that_cannot_be(self, data: st.DataObject, access: int) -> None:
        domain = data.draw(st.sampled_from(self.domains))
        own = bytearray(64)
        self.refused(errno.EINVAL, lambda: MR(domain.thing, 64, access))
        self.refused(errno.EINVAL, lambda: MR(domain.thing, 64, access, address_of(own)))
        self.refused(errno.EINVAL, lambda: MR(domain.thing, 0, LOCAL_WRITE))
        self.refused(errno.ENOMEM, lambda: MR(domain.thing, 1 << 40, LOCAL_WRITE))
        for region in data.draw(st.lists(st.sampled_from(self.regions), max_size=1)) if self.regions else ():
            change, look = region.thing.rereg, partial(self.keys_of, region)
            for flags in (e.IBV_REREG_MR_CHANGE_ACCESS, 0, 8 | e.IBV_REREG_MR_CHANGE_ACCESS):
                self.refused(errno.EINVAL, partial(change, flags, access=access), look)

    @precondition(lambda self: self.regions)
    @rule(data=st.data(), access=RIGHTS, start=STARTS, length=LENGTHS, flags=st.integers(1, 7))
    def change_region(self, data: st.DataObject, access: int, start: int, length: int, flags: int) -> None:
        region = data.draw(st.sampled_from(self.regions))
        side = region.domain.side
        domain = data.draw(st.sampled_from([each for each in self.domains if each.side == side]))
        if region.host:
            flags &= ~e.IBV_REREG_MR_CHANGE_TRANSLATION
        if not flags:
            return
        translation = flags & e.IBV_REREG_MR_CHANGE_TRANSLATION
        address = address_of(region.keeper) + start if translation else 0
        self.keys.kill(region)
        region.thing.rereg(flags, domain.thing, address, length if translation else 0, access)
        if flags & e.IBV_REREG_MR_CHANGE_ACCESS:
            region.access = access
        if flags & e.IBV_REREG_MR_CHANGE_PD:
            region.domain = domain
        if translation:
            region.start, region.length, region.va = start, length, address
            assert (side, region.thing.rkey) != self.keys.dead[-1]
        else:
            assert (side, region.thing.rkey) == self.keys.dead.pop()
        assert (region.thing.length, region.thing.lkey) == (region.length, region.thing.rkey)
        self.keys.enter(region, region.thing.rkey)
        self.favourite = region

    def forget_region(self, region: Region) -> None:
        self.keys.kill(region)
        self.regions.remove(region)
        if not region.host:
            assert region.keeper == region.content
        self.closed.append(lambda: region.thing.lkey)

    @precondition(lambda self: len(self.regions) > 4)
    @rule(data=st.data())
    def close_region(self, data: st.DataObject) -> None:
        region = data.draw(st.sampled_from(self.regions))
        region.thing.close()
        self.forget_region(region)

    @precondition(lambda self: self.regions)
    @rule(data=st.data(), length=st.integers(-1, 5000), byte=st.integers(0, 255))
    def look_and_write_through_a_region(self, data: st.DataObject, length: int, byte: int) -> None:
        offset = data.draw(st.integers(-1, KEEPER_BYTES))
        region = data.draw(st.sampled_from(self.regions))
        written = bytes([byte]) * max(length, 0)
        if offset < 0 or length < 0 or offset + length > region.length:
            with pytest.raises(PyverbsUserError):
                region.thing.write(written, length, offset)
            with pytest.raises(PyverbsUserError):
                region.thing.read(length, offset)
            return
        region.thing.write(written, length, offset)
        region.store(region.va + offset, written)
        assert region.thing.read(length, offset) == written

    def teardown(self) -> None:
        """Whatever is left: closing the contexts closes all of it, and memory was not touched behind it."""
        for context in self.contexts:
            context.close()
        assert not any(count for counts in self.counts() for count in counts.values())
        for region in self.regions:
            assert region.host or region.keeper == region.content


class Driven:
    """What `wait_until` drives: something with a context."""

    def __init__(self, context: Context) -> None:
        self.context = context
