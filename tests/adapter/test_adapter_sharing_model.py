"""Three hosts that export, import, register, free and go in any order, against a table of who may do what.

The commands are what a hostile client can write: any number may be another host's, or nobody's.
"""

import contextlib
import errno
import os
import random
from dataclasses import dataclass, field

import pytest

from softhca.adapter.commands import execute
from softhca.adapter.resources import Kind
from softhca.memory.bits import SLOT_BYTES
from softhca.memory.host import HostMemory, SharedHostMemory
from softhca.queues import control_fields as control
from softhca.queues.handshake import HostFrames
from softhca.testing.network import Network

HOSTS = 3
FILES = 3


class Side:
    """A host in a process of its own, as an adapter sees it; ``files`` are the descriptors that it passes."""

    pid, foreign = 1, False

    def __init__(self, files):
        self.files = files
        self.memory = HostMemory(2 * SLOT_BYTES)
        self.shared = SharedHostMemory(self.memory.fd)
        self.address_map = self.shared.address_map
        self.frame = self.memory.allocate(1)[0]
        self.frames = HostFrames(
            self.memory.allocate(HostFrames.CONTROL_PAGES), self.memory.allocate(HostFrames.DOORBELL_PAGES)
        )

    def take_descriptor(self, number):
        return os.dup(self.files[number])

    def event_channel(self, number):
        raise OSError(errno.EBADF, "there is none")

    def close(self):
        self.shared.close()
        self.memory.close()


@dataclass
class Domain:
    owner: int
    importers: set = field(default_factory=set)
    inherited: bool = False


class Model:
    """Who has what: hosts are numbers, regions are (host, domain) by their first key."""

    def __init__(self):
        self.exports = {}  # host → file
        self.shown = set()  # (host, owner)
        self.domains = {}
        self.regions = {}

    def usable(self, host, pd):
        domain = self.domains.get(pd)
        return domain is not None and (domain.owner == host or host in domain.importers)

    def has_something(self, host, pd):
        return any(region == (host, pd) for region in self.regions.values())

    def referenced(self, pd):
        return any(where == pd for _, where in self.regions.values())

    def export(self, host, file):
        if host in self.exports:
            return errno.EALREADY
        if file in self.exports.values():
            return errno.EBUSY
        self.exports[host] = file
        return 0

    def show(self, host, file):
        owner = next((owner for owner, each in self.exports.items() if each == file), host)
        if owner == host:
            return errno.EINVAL
        self.shown.add((host, owner))
        return 0

    def import_pd(self, host, pd):
        domain = self.domains.get(pd)
        if domain is None or (host, domain.owner) not in self.shown:
            return errno.ENOENT
        if host in domain.importers:
            return errno.EALREADY
        domain.importers.add(host)
        return 0

    def unimport_pd(self, host, pd):
        if not self.usable(host, pd):
            return errno.EINVAL
        if self.has_something(host, pd):
            return errno.EBUSY
        domain = self.domains[pd]
        if domain.owner != host:
            domain.importers.discard(host)
            return 0
        if not domain.inherited:
            return errno.EINVAL
        if not self.pass_on(pd):
            del self.domains[pd]
        return 0

    def pass_on(self, pd):
        """The owner goes: who has something in it has it; whether there is somebody."""
        domain = self.domains[pd]
        for heir in sorted(domain.importers):
            if self.has_something(heir, pd):
                domain.importers.discard(heir)
                domain.owner, domain.inherited = heir, True
                return True
        return False

    def free(self, host, pd):
        domain = self.domains.get(pd)
        if domain is None or domain.owner != host:
            return errno.EINVAL
        if self.referenced(pd):
            return errno.EBUSY
        del self.domains[pd]
        return 0

    def look(self, host, pd, key):
        if not self.usable(host, pd):
            return errno.EINVAL
        owner, where = self.regions.get(key, (None, None))
        if where != pd or not (owner == host or (host, owner) in self.shown):
            return errno.ENOENT
        return 0

    def go(self, host):
        self.regions = {key: region for key, region in self.regions.items() if region[0] != host}
        for pd in [pd for pd, domain in self.domains.items() if domain.owner == host]:
            if not self.pass_on(pd):
                del self.domains[pd]
        for domain in self.domains.values():
            domain.importers.discard(host)
        self.exports.pop(host, None)
        self.shown = {pair for pair in self.shown if host not in pair}


@pytest.fixture(scope="module")
def sides():
    files = [os.memfd_create(f"file {number}") for number in range(FILES)]
    made = [Side(files) for _ in range(HOSTS)]
    yield made
    for each in made:
        each.close()
    for file in files:
        os.close(file)


OFTEN = {"imports": 4, "register": 4, "moves": 2, "unimport": 3, "end": 3, "look": 2, "show": 2, "alloc": 2}
STEPS = ["export", "free", "go", *(each for each, times in OFTEN.items() for _ in range(times))]


class Walk:
    """Hosts of one adapter, and what the table says of them."""

    def __init__(self, sides, seed):
        self.random = random.Random(seed)
        self.sides = sides
        self.adapter = Network().add(1, max_pd=4).adapter
        self.model = Model()
        self.hosts = [self.adapter.attach_host(side) for side in sides]

    def do(self, who, command, **fields):
        return execute(self.adapter, self.adapter.hosts[self.hosts[who]], command, fields, 0)[:2]

    def one_of(self, known):
        """Mostly one of those that there are, else any."""
        known = sorted(known)
        return (
            self.random.choice(known) if known and self.random.random() < 0.95 else self.random.randrange(6)
        )

    def step(self):
        model, what, who = self.model, self.random.choice(STEPS), self.random.randrange(HOSTS)
        host, file = self.hosts[who], self.random.randrange(FILES)
        pd, key = self.one_of(model.domains), self.one_of(model.regions)
        getattr(self, what)(who, host, file, pd, key)
        assert self.adapter.resources.count(Kind.PD) == len(model.domains)
        assert self.adapter.resources.count(Kind.MR) == len(model.regions)

    def export(self, who, host, file, pd, key):
        assert self.do(who, control.EXPORT_CONTEXT, descriptor=file)[0] == self.model.export(host, file)

    def show(self, who, host, file, pd, key):
        assert self.do(who, control.IMPORT_CONTEXT, descriptor=file)[0] == self.model.show(host, file)

    def alloc(self, who, host, file, pd, key):
        code, reply = self.do(who, control.ALLOC_PD)
        assert code == (errno.ENOMEM if len(self.model.domains) == 4 else 0)
        if not code:
            assert reply["pd"] not in self.model.domains
            self.model.domains[reply["pd"]] = Domain(host)

    def free(self, who, host, file, pd, key):
        assert self.do(who, control.DEALLOC_PD, pd=pd)[0] == self.model.free(host, pd)

    def imports(self, who, host, file, pd, key):
        assert self.do(who, control.IMPORT_PD, pd=pd)[0] == self.model.import_pd(host, pd)

    def unimport(self, who, host, file, pd, key):
        assert self.do(who, control.UNIMPORT_PD, pd=pd)[0] == self.model.unimport_pd(host, pd)

    def register(self, who, host, file, pd, key):
        fields = {"va": 0, "length": 8, "access": 1, "page_offset": 0, "zero_based": 0}
        frames = [(self.sides[who].frame, 1)]
        code, reply = self.do(who, control.REG_MR, pd=pd, frames=frames, **fields)
        assert code == (0 if self.model.usable(host, pd) else errno.EINVAL)
        if not code:
            self.model.regions[reply["lkey"]] = host, pd

    def moves(self, who, host, file, pd, key):
        owner, _ = self.model.regions.get(key, (0, 0))
        fields = {"flags": control.REREG_PD, "access": 0, "length": 0}
        code, reply = self.do(who, control.REREG_MR, lkey=key, pd=pd, **fields)
        may = owner == host and self.model.usable(host, pd)
        assert code == (0 if may else errno.EINVAL)
        if may:
            assert reply["lkey"] == key
            self.model.regions[key] = host, pd

    def end(self, who, host, file, pd, key):
        mine = self.model.regions.get(key, (0, 0))[0] == host
        assert self.do(who, control.DEREG_MR, lkey=key)[0] == (0 if mine else errno.EINVAL)
        if mine:
            del self.model.regions[key]

    def look(self, who, host, file, pd, key):
        assert self.do(who, control.IMPORT_MR, pd=pd, mr=key)[0] == self.model.look(host, pd, key)

    def go(self, who, host, file, pd, key):
        self.model.go(host)
        self.adapter.detach_host(host)
        self.hosts[who] = self.adapter.attach_host(self.sides[who])


def one_domain(sides):
    """A walk in which the first host has exported a domain, and that one's number."""
    walk = Walk(sides, 0)
    walk.export(0, walk.hosts[0], 0, 0, 0)
    walk.alloc(0, walk.hosts[0], 0, 0, 0)
    (pd,) = walk.model.domains
    return walk, pd


def descriptors():
    """Those of this process, with what they stand for: others' threads may close some of theirs meanwhile."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found.add((number, os.stat(f"/proc/self/fd/{number}").st_ino))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_every_answer_is_the_tables_and_nothing_is_left(sides, seed):
    before = descriptors()
    walk = Walk(sides, seed)
    for who in range(HOSTS):
        walk.export(who, walk.hosts[who], who, 0, 0)
    for _ in range(1_500):
        walk.step()
    for number in walk.hosts:
        walk.adapter.detach_host(number)
    assert sum(map(walk.adapter.resources.count, Kind)) == 0
    assert descriptors() <= before


def test_an_heir_that_has_let_go_has_the_domain_no_more(sides):
    walk, pd = one_domain(sides)
    for who in (1, 2):
        walk.show(who, walk.hosts[who], 0, pd, 0)
        walk.imports(who, walk.hosts[who], 0, pd, 0)
        walk.register(who, walk.hosts[who], 0, pd, 0)
    walk.go(0, walk.hosts[0], 0, 0, 0)
    (key,) = [key for key, (host, _) in walk.model.regions.items() if host == walk.hosts[1]]
    walk.end(1, walk.hosts[1], 0, pd, key)
    walk.unimport(1, walk.hosts[1], 0, pd, 0)
    assert walk.model.domains[pd] == Domain(walk.hosts[2], set(), True)
    walk.register(1, walk.hosts[1], 0, pd, 0)
    assert walk.do(1, control.UNIMPORT_PD, pd=pd)[0] == errno.EINVAL
    assert walk.do(1, control.DEALLOC_PD, pd=pd)[0] == errno.EINVAL


def test_a_null_region_that_is_imported_has_no_key_for_peers(sides):
    walk, pd = one_domain(sides)
    key = walk.do(0, control.ALLOC_NULL_MR, pd=pd)[1]["lkey"]
    walk.show(1, walk.hosts[1], 0, pd, 0)
    walk.imports(1, walk.hosts[1], 0, pd, 0)
    told = {"lkey": key, "rkey": 0, "length": (1 << 64) - 1}
    assert walk.do(1, control.IMPORT_MR, pd=pd, mr=key) == (0, told)
    assert walk.do(1, control.ALLOC_NULL_MR, pd=pd)[0] == 0
    assert walk.do(2, control.ALLOC_NULL_MR, pd=pd)[0] == errno.EINVAL
    assert walk.do(1, control.DEREG_MR, lkey=key)[0] == errno.EINVAL
    assert walk.do(0, control.DEREG_MR, lkey=key)[0] == 0


def test_null_regions_end_with_their_domain_unless_others_are_in_it(sides):
    walk, pd = one_domain(sides)
    first, second = (walk.do(0, control.ALLOC_NULL_MR, pd=pd)[1]["lkey"] for _ in range(2))
    walk.register(0, walk.hosts[0], 0, pd, 0)
    assert walk.do(0, control.DEALLOC_PD, pd=pd)[0] == errno.EBUSY
    walk.end(0, walk.hosts[0], 0, pd, next(iter(walk.model.regions)))
    walk.show(1, walk.hosts[1], 0, pd, 0)
    walk.imports(1, walk.hosts[1], 0, pd, 0)
    other = walk.do(1, control.ALLOC_NULL_MR, pd=pd)[1]["lkey"]
    assert walk.do(0, control.DEALLOC_PD, pd=pd)[0] == errno.EBUSY
    assert walk.do(1, control.DEREG_MR, lkey=other)[0] == 0
    assert walk.adapter.regions.find(first, pd, 0, 8, 1) is not None
    assert walk.do(0, control.DEALLOC_PD, pd=pd)[0] == 0
    assert walk.adapter.regions.find(first, pd, 0, 8, 1) is None
    assert walk.do(0, control.DEREG_MR, lkey=second)[0] == errno.EINVAL
    assert walk.adapter.resources.count(Kind.MR) == 0
