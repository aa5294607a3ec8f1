"""Objects that are known without being kept alive, to any thread.

`weakref.WeakSet` cannot be looked through while another thread adds to it (RuntimeError).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

Member = TypeVar("Member")


class WeakMembers(Generic[Member]):
    """Members, by identity, as long as there is another reference to them.

    Who looks through them sees those that were there when it began.  Any thread may call any method.
    """

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: weakref.WeakValueDictionary[int, Member] = weakref.WeakValueDictionary()

    def add(self, member: Member) -> None:
        """Make it a member; once is as good as twice."""
        self._members[id(member)] = member

    def discard(self, member: Member) -> None:
        """Let it go, if it is one."""
        self._members.pop(id(member), None)

    def clear(self) -> None:
        """Let all go."""
        self._members = weakref.WeakValueDictionary()

    def __iter__(self) -> Iterator[Member]:
        references = self._members.valuerefs()  # a list, made without letting another thread go on
        return iter([member for each in references if (member := each()) is not None])
