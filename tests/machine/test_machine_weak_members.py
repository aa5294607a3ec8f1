"""Members that are known without being kept alive."""

import gc

from softhca.machine.weak_members import WeakMembers


class Thing:
    """One that can be referred to weakly; all are equal."""

    def __eq__(self, other):
        return isinstance(other, Thing)

    def __hash__(self):
        return 1


def test_members_are_known_by_identity_and_only_as_long_as_they_live():
    members, first, second = WeakMembers(), Thing(), Thing()
    members.add(first)
    members.add(second)
    members.add(first)
    assert sorted(map(id, members)) == sorted([id(first), id(second)])
    members.discard(Thing())
    members.discard(second)
    assert [id(member) for member in members] == [id(first)]
    del first
    gc.collect()
    assert list(members) == []
    members.add(second)
    members.clear()
    assert list(members) == []


def test_who_looks_through_them_sees_those_that_were_there():
    """However many come and go meanwhile."""
    members, there = WeakMembers(), [Thing() for _ in range(3)]
    for thing in there:
        members.add(thing)
    come, seen = [], []
    for thing in members:
        seen.append(thing)
        come.append(Thing())
        members.add(come[-1])
        members.discard(there[-1])
    assert [id(thing) for thing in seen] == [id(thing) for thing in there]
    assert len(list(members)) == 2 + 3
