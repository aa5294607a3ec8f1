"""A pageable memory and its arbitrator: its owner quiesces it, swaps it, moves its pages, changes its rights.

Theory of operation.  The page table stands once, in the memfd, for every adapter that has attached.  Only the
owner writes it.  An absent page is put there at any time: its bytes first, its entry then.  Whatever takes a
page away, moves it, or changes rights is done under *quiesce*: the bit is set in every attachment's I/O word,
and when no count is left nobody copies, and nobody will.

Each step either happens or leaves everything as it was: what can fail (room in the swap file, memory for
frames, the process's mappings) is done before the table is touched, and undone where it fails.

States: ``RUNNING``; ``QUIESCED`` by the consumer; ``OUT``: swapped out, hence quiesced; ``CLOSED``.
"""

import contextlib
import errno
import os
from collections.abc import Callable

from softhca.machine.primitives import atomic_add64, load32, load64, store64, wait_word, wake_word
from softhca.memory import paged_layout as layout
from softhca.memory.bits import RIGHTS_MASK
from softhca.memory.paged import clear_entries, put_entries, scan_entries
from softhca.memory.paged_frames import Frames, Piece, View
from softhca.memory.paged_mapping import PagedMapping, busy_lines, make_memfd, quiesce_bits
from softhca.memory.paged_swap import SwapFile
from softhca.memory.regions import (
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    REMOTE_ATOMIC,
    REMOTE_WRITE,
    ZERO_BASED,
)
from softhca.memory.runs import Run

RUNNING = "running"
QUIESCED = "quiesced"
OUT = "swapped out"
CLOSED = "closed"
MOST_AT_ONCE = 1024
"""Pages that one request for absent pages brings at most."""

Pause = Callable[[], bool]
"""Called while something is waited for; False: it has lasted long enough."""


def _never() -> bool:
    return False


class PagedMemory:
    """``length`` bytes of pageable memory with ``rights`` (the verbs' access bits), owned by this process.

    With ``ON_DEMAND`` among the rights pages are absent until they are asked for.  Raises OSError EINVAL for
    a length or rights that cannot be, else what the system says.  One thread at a time.
    """

    def __init__(self, length: int, rights: int, swap_directory: str | None = None) -> None:
        _check_rights(rights)
        self.fd = make_memfd(length, layout.VALID | rights)
        try:
            self.mapping = PagedMapping(self.fd)
            self.frames = Frames(self.fd, self.mapping)
            self.view = View(self.fd, self.frames, self.mapping.pages)
            self.swap = SwapFile(self.mapping.pages, swap_directory)
            self.length = length
            self.pages = self.mapping.pages
            self.state = RUNNING
            self.on_demand = bool(rights & ON_DEMAND)
            self._served = 0
            self._former: list[Piece] = []
            if not self.on_demand:
                self._bring([(0, self.pages)])
        except BaseException:
            os.close(self.fd)
            raise
        self.pid = os.getpid()

    @property
    def address(self) -> int:
        """Where the view is in this process."""
        return self.view.address

    @property
    def rights(self) -> int:
        """The rights that the memory gives at present."""
        self._must_be_open()
        return self.mapping.rights() & layout.ACCESS_BITS

    @property
    def resident_bytes(self) -> int:
        """Memory that the memfd takes at present: header, table and frames, as the system counts it."""
        self._must_be_open()
        return os.fstat(self.fd).st_blocks * 512

    # The arbitrator

    def quiesce(self, pause: Pause = _never) -> None:
        """Stop all access until `resume`.  OSError EBUSY when it is stopped already, ETIMEDOUT when an
        access does not end (nothing has changed then).
        """
        self._must_run()
        self._drain(pause)
        self.state = QUIESCED

    def resume(self) -> None:
        """Let accesses go on after `quiesce`.  OSError EINVAL when it is not quiesced, EBUSY when it is
        swapped out (`swap_in` ends that).
        """
        self._must_own()
        if self.state == OUT:
            raise OSError(errno.EBUSY, "the memory is swapped out")
        if self.state != QUIESCED:
            raise OSError(errno.EINVAL, "the memory is not quiesced")
        self._lift()

    def set_rights(self, rights: int, pause: Pause = _never) -> None:
        """Change what the memory allows; when this returns every attachment keeps it.

        Operations that have begun under the old rights end with an access error.  OSError EINVAL for rights
        that cannot be (``ON_DEMAND`` cannot change), else as `quiesce`.
        """
        _check_rights(rights)
        if bool(rights & ON_DEMAND) != self.on_demand:
            raise OSError(errno.EINVAL, "a memory is on demand from its beginning or not at all")
        self._must_run()
        if rights == self.rights:
            return
        self._drain(pause)
        self._put_rights(layout.VALID | rights)
        self._lift()

    def swap_out(self, pause: Pause = _never, first: int = 0, count: int | None = None) -> None:
        """Take pages' memory away; their bytes go to the swap file.

        Without ``ON_DEMAND`` it is all pages, and the memory stays quiesced until `swap_in`; else those of
        the range, which come back when they are asked for.  OSError EBUSY when it is quiesced or out, EINVAL
        for a range that cannot be, ENOSPC … when the swap file finds no room, ETIMEDOUT as `quiesce`.
        """
        run = self._range(first, count)
        if not self.on_demand and run != (0, self.pages):
            raise OSError(errno.EINVAL, "only memory on demand goes out in parts")
        self._must_run()
        pieces = self._present(*run)
        self._drain(pause)
        try:
            self._hide(pieces)
            try:
                for piece in pieces:
                    self._write_out(piece)
            except BaseException:
                for page, _, number in pieces:
                    self.swap.forget(page, number)
                self.view.show(pieces)
                raise
        except BaseException:
            self._lift()
            raise
        self._clear(pieces)
        if self.on_demand:
            self.frames.give(pieces)
            self._lift()
        else:
            # Not given out again before the pages have other ones.
            self.frames.empty(pieces)
            self._former = pieces
            self.state = OUT

    def swap_in(self) -> None:
        """Bring all pages back, to other frames than they had, and let accesses go on.

        OSError EINVAL when nothing is out, ENOMEM or ENOSPC when there is no memory for them, EIO when the
        swap file cannot be read.
        """
        self._must_own()
        if self.on_demand:
            self._must_run()
        elif self.state != OUT:
            raise OSError(errno.EINVAL, "the memory is not swapped out")
        absent = self._absent(0, self.pages)
        if self.on_demand and not absent:
            raise OSError(errno.EINVAL, "no page is out")
        self._bring(absent)
        former, self._former = self._former, []
        self.frames.give(former)
        if self.state == OUT:
            self._lift()

    def migrate(self, pause: Pause = _never) -> int:
        """Move every page that is there to another frame, under the view's unchanged addresses; how many.

        Nobody writes the view meanwhile.  OSError EBUSY when it is quiesced or out, ENOMEM or ENOSPC when
        there are no frames or no memory for them, ETIMEDOUT as `quiesce`.
        """
        self._must_run()
        old = self._present(0, self.pages)
        new = self.frames.take([(page, count) for page, _, count in old])
        try:
            self._drain(pause)
        except BaseException:
            self.frames.give(new)
            raise
        try:
            for source, target in _matched(old, new):
                self.frames.copy(source, target)
            try:
                self.view.show(new)
            except BaseException:
                self.view.show(old)
                raise
        except BaseException:
            self.frames.give(new)
            self._lift()
            raise
        for page, frame, count in new:
            put_entries(self.mapping.table, page, frame, count)
        self.frames.give(old)
        self._lift()
        return sum(count for _, _, count in new)

    # Absent pages

    def absent(self) -> list[Run]:
        """Runs of pages that are not there: (first, how many)."""
        self._must_own()
        return self._absent(0, self.pages)

    def fetch(self, first: int, count: int) -> int:
        """Bring the absent ones of these pages; how many.  Needs no quiesce.  OSError as `swap_in`, EBUSY
        when accesses are stopped.
        """
        run = self._range(first, count)
        self._must_run()
        absent = self._absent(*run)
        self._bring(absent)
        return sum(number for _, number in absent)

    def require(self, first: int, count: int) -> None:
        """See to it that the owner can touch these pages in the view.  OSError EBUSY while they are out, else
        as `fetch`.
        """
        run = self._range(first, count)
        self._must_own()
        if self.state == OUT:
            raise OSError(errno.EBUSY, "the memory is swapped out")
        absent = self._absent(*run)
        if absent:
            self._must_run()
            self._bring(absent)

    def service(self) -> int:
        """Bring the pages that attachments ask for, a bounded number; how many.  Nothing while accesses are
        stopped.  OSError as `swap_in`; what was asked for stays so then.
        """
        self._must_own()
        asked = load64(self.mapping.base + layout.FAULTS)
        if asked == self._served or self.state != RUNNING:
            return 0
        brought = 0
        for number in range(layout.ATTACHMENTS):
            place = self.mapping.line(number) + layout.WANTED
            wanted = load64(place)
            first = (wanted & layout.WANTED_BITS) - 1
            if wanted == 0:
                continue
            if 0 <= first < self.pages:
                count = min(max(wanted >> layout.WANTED_SHIFT, 1), MOST_AT_ONCE, self.pages - first)
                brought += self.fetch(first, count)
            store64(place, 0)
        self._served = asked
        return brought

    def requests(self) -> int:
        """How often pages have been asked for, modulo 2^32."""
        return int(load32(self.mapping.base + layout.FAULTS))

    def wait_request(self, requests: int, timeout_ns: int) -> None:
        """Sleep until `requests` is no longer so many, or for that long; another thread may do all else
        meanwhile.
        """
        wait_word(self.mapping.base + layout.FAULTS, requests, timeout_ns)

    def wake(self) -> None:
        """Wake who sleeps in `wait_request`, or is about to."""
        atomic_add64(self.mapping.base + layout.FAULTS, 1)
        wake_word(self.mapping.base + layout.FAULTS)

    # Parts of these

    def _must_be_open(self) -> None:
        if self.state == CLOSED:
            raise OSError(errno.EINVAL, "the memory is closed")

    def _must_own(self) -> None:
        self._must_be_open()
        if os.getpid() != self.pid:
            raise OSError(errno.EPERM, "the memory belongs to the parent of this process")

    def _must_run(self) -> None:
        self._must_own()
        if self.state != RUNNING:
            raise OSError(errno.EBUSY, f"the memory is {self.state}")

    def _range(self, first: int, count: int | None) -> Run:
        count = self.pages - first if count is None else count
        if first < 0 or count <= 0 or first + count > self.pages:
            raise OSError(errno.EINVAL, f"there are no {count} pages from {first} on")
        return first, count

    def _drain(self, pause: Pause) -> None:
        """Set the bit everywhere and wait until nobody copies any more."""
        quiesce_bits(self.mapping, True)
        try:
            while busy := busy_lines(self.mapping):
                reclaimed = [self.mapping.reclaim(number) for number in busy]
                if not any(reclaimed) and not pause():
                    raise OSError(errno.ETIMEDOUT, f"attachments {busy} do not end their access")
        except BaseException:
            quiesce_bits(self.mapping, False)
            raise

    def _lift(self) -> None:
        self.state = RUNNING
        quiesce_bits(self.mapping, False)

    def _put_rights(self, rights: int) -> None:
        """Write the rights word; its generation goes on."""
        generation = (self.mapping.rights() & ~layout.VALID) >> layout.GENERATION_SHIFT
        generation = (generation + 1) & ((1 << 55) - 1)
        store64(self.mapping.base + layout.RIGHTS, rights | generation << layout.GENERATION_SHIFT)

    def _present(self, first: int, count: int) -> list[Piece]:
        pieces: list[Piece] = scan_entries(self.mapping.table, first, count)
        self.frames.check(pieces)
        return pieces

    def _absent(self, first: int, count: int) -> list[Run]:
        runs = []
        for page, _, there in [*scan_entries(self.mapping.table, first, count), (first + count, 0, 0)]:
            if page > first:
                runs.append((first, page - first))
            first = page + there
        return runs

    def _clear(self, pieces: list[Piece]) -> None:
        for page, _, count in pieces:
            clear_entries(self.mapping.table, page, count)

    def _hide(self, pieces: list[Piece]) -> None:
        hidden: list[Piece] = []
        try:
            for piece in pieces:
                self.view.hide(piece[0], piece[2])
                hidden.append(piece)
        except BaseException:
            self.view.show(hidden)
            raise

    def _write_out(self, piece: Piece) -> None:
        """Copy the bytes that a piece has to the swap file; its other pages are zero."""
        page, frame, count = piece
        for begin, length in self.frames.data(frame, count):
            with self.frames.bytes(begin, length) as data:
                self.swap.write(page + begin - frame, data)

    def _bring(self, absent: list[Run]) -> None:
        """Give absent pages frames, bytes, their place in the view, and entries, in this order."""
        pieces = self.frames.take(absent)
        try:
            for piece in pieces:
                self._read_in(piece)
            self.view.show(pieces)
        except BaseException:
            for page, _, count in pieces:
                self.view.hide(page, count)
            self.frames.give(pieces)
            raise
        for page, frame, count in pieces:
            put_entries(self.mapping.table, page, frame, count)
            self.swap.forget(page, count)

    def _read_in(self, piece: Piece) -> None:
        """Fill frames with what the swap file holds of their pages."""
        page, frame, count = piece
        for begin, length in self.swap.runs(page, count):
            self.frames.reserve(frame + begin - page, length)
            with self.frames.bytes(frame + begin - page, length) as room:
                self.swap.read(begin, room)

    def close(self) -> None:
        """End the memory: every region of it, here and elsewhere, is dead.  May be called again."""
        if self.state == CLOSED:
            return
        if os.getpid() == self.pid:
            self._put_rights(0)
            self._lift()
        self.state = CLOSED
        self.swap.close()
        self.frames.close()
        with contextlib.suppress(BufferError):  # somebody still looks at the view
            self.view.close()
        self.mapping.close()
        os.close(self.fd)


def _matched(old: list[Piece], new: list[Piece]) -> list[tuple[Piece, Piece]]:
    """Old and new places of the same pages, in pieces of the same length; ``new`` is cut finer."""
    pairs = []
    rest = list(reversed(old))
    for page, frame, count in new:
        first, source, length = rest.pop()
        pairs.append(((page, source, count), (page, frame, count)))
        if length > count:
            rest.append((first + count, source + count, length - count))
    return pairs


def _check_rights(rights: int) -> None:
    """EINVAL for rights that a memory cannot have."""
    if rights & ~RIGHTS_MASK or rights & (MW_BIND | ZERO_BASED):
        raise OSError(errno.EINVAL, f"a pageable memory has no rights {rights:#x}")
    if rights & (REMOTE_WRITE | REMOTE_ATOMIC) and not rights & LOCAL_WRITE:
        raise OSError(errno.EINVAL, "remote write and remote atomic access need local write access")
