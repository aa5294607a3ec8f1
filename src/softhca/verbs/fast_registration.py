"""Fast registration: regions whose pages come and go by work requests (softhca's own; see `extensions`)."""

import errno
from collections.abc import Sequence
from typing import NamedTuple

from softhca.memory.bits import PAGE_BYTES
from softhca.verbs.base import Resource, creating, inc_rkey, read_only, require, translated
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError

Piece = tuple[MR, int, int]
"""Region, offset in bytes, length in bytes."""


class Registration(NamedTuple):
    """What a registering work request says: runs of pages as (first frame, pages, 0), the offset in the first
    page, length in bytes, and the address by which requests name the first byte."""

    runs: tuple[tuple[int, int, int], ...]
    page_offset: int
    length: int
    iova: int


class FastMR(Resource):
    """A region for ``max_pages`` pages at most, without any until a work request registers them.

    `SendWR.set_reg_wr` makes that request; a LOCAL_INV, or the peer's SEND with Invalidate, takes the pages
    away again.  In between ``SendWR.rkey`` is both L_Key and R_Key.  The regions that lent their pages must
    stay until then.
    """

    __slots__ = ("_key", "_max_pages", "_number", "_pd")
    pd: PD = read_only("_pd", "The protection domain.")
    max_pages: int = read_only("_max_pages", "The most pages.")

    def __init__(self, creator: PD, max_pages: int) -> None:
        require(creator, PD, "creator")
        creator._require_open()
        self._driver = creator._driver
        with creating("Failed to allocate a fast MR"):
            self._number, self._key = self._driver.alloc_fast_mr(creator.number, max_pages)
            self._max_pages = max_pages
            self._pd = creator
            self._opened(creator)

    def _destroy(self) -> None:
        self._driver.dereg_fast_mr(self._number)

    @property
    def handle(self) -> int:
        """The number by which work requests name it."""
        self._require_open()
        return self._number

    @property
    def key(self) -> int:
        """The key that was made last: its low byte is the consumer's."""
        self._require_open()
        return self._key

    def _next_key(self) -> int:
        """The next key, so that one that was withdrawn does not come to life with the next registration."""
        self._key = inc_rkey(self.key)
        return self._key

    def _registration(self, pieces: Sequence[Piece], iova: int | None) -> Registration:
        """The pages of ``pieces``, which must lie end to end in whole pages."""
        runs: list[tuple[int, int, int]] = []
        page_offset = total = 0
        with translated("Failed to register in a fast MR"):
            for mr, offset, length in pieces:
                require(mr, MR, "mr")
                frame, pages, within = self._driver.pages_of(mr.handle, offset, length)
                if runs and (within or (page_offset + total) % PAGE_BYTES):
                    raise PyverbsRDMAError(
                        "Failed to register in a fast MR: pieces: they meet in the middle of a page",
                        errno.EINVAL,
                    )
                if not runs:
                    page_offset = within
                runs.append((frame, pages, 0))
                total += length
        if not runs:
            raise PyverbsRDMAError(
                "Failed to register in a fast MR: pieces: there is no memory", errno.EINVAL
            )
        first = pieces[0]
        return Registration(
            tuple(runs), page_offset, total, first[0].buf + first[1] if iova is None else iova
        )
