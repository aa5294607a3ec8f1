"""Bugs of the rings and their messages that were planted by hand, which no test of them found at first."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

RING = "queues/test_queues_ring.py"
WORK = "queues/test_queues_wqe.py"
CONTROL = "queues/test_queues_control.py"
DOORBELLS = "queues/test_queues_doorbells.py"
HANDSHAKE = "queues/test_queues_handshake.py"

QUEUES: tuple[tuple[Mutant, str], ...] = (
    (m("queues-command-longer", "queues/control.py", "if zero or reserved or length != len(data) - _COMMAND.size:", "if zero or reserved or length > len(data) - _COMMAND.size:",
       "a command may be longer than its header says"), CONTROL),
    (m("queues-command-header-free", "queues/control.py", "if _COMMAND.size + len(body) > COMMAND_BYTES:", "if len(body) > COMMAND_BYTES:",
       "a command's header does not count where it must fit"), CONTROL),
    (m("queues-command-just-fits", "queues/control.py", "if _COMMAND.size + len(body) > COMMAND_BYTES:", "if _COMMAND.size + len(body) >= COMMAND_BYTES:",
       "a command of just the most bytes is refused"), CONTROL),
    (m("queues-reply-header-free", "queues/control.py", "if _REPLY.size + len(body) > REPLY_BYTES:", "if len(body) > REPLY_BYTES:",
       "a reply's header does not count where it must fit"), CONTROL),
    (m("queues-reply-just-fits", "queues/control.py", "if _REPLY.size + len(body) > REPLY_BYTES:", "if _REPLY.size + len(body) >= REPLY_BYTES:",
       "a reply of just the most bytes is refused"), CONTROL),
    (m("queues-reply-command-cut", "queues/control.py", "command & 0xFFFF, code", "command & 0xFF, code",
       "a refusal names another command"), CONTROL),
    (m("queues-reply-longer", "queues/control.py", "if length != len(data) - _REPLY.size or (code", "if length > len(data) - _REPLY.size or (code",
       "a reply may be longer than its header says"), CONTROL),
    (m("queues-refusal-unknown", "queues/control.py", "(code == 0 and command not in COMMANDS)", "(command not in COMMANDS)",
       "the refusal of a command that there is not is malformed"), CONTROL),
    (m("queues-reason-cut", "queues/control.py", "decode(\"utf-8\", \"ignore\")", "decode(\"utf-8\")",
       "a reason that is cut within a letter is an error"), CONTROL),
    (m("queues-control-more-frames", "queues/control.py", "if len(frames) != self.PAGES:", "if len(frames) < self.PAGES:",
       "control rings take more frames than they need"), CONTROL),
    (m("queues-doorbells-most", "queues/doorbells.py", "if not 0 < slots <= MAX_DOORBELL_SLOTS:", "if not 0 < slots < MAX_DOORBELL_SLOTS:",
       "the most doorbells are refused"), DOORBELLS),
    (m("queues-doorbells-more-pages", "queues/doorbells.py", "if len(pages) != plan(slots):", "if len(pages) < plan(slots):",
       "doorbells take more pages than they need"), DOORBELLS),
    (m("queues-doorbells-unaligned", "queues/doorbells.py", "if any([page <= 0 or page % PAGE_BYTES for page in pages]):", "if any([page <= 0 for page in pages]):",
       "pages of doorbells need not be aligned"), DOORBELLS),
    (m("queues-doorbells-unmapped", "queues/doorbells.py", "if any([page <= 0 or page % PAGE_BYTES for page in pages]):", "if any([page % PAGE_BYTES for page in pages]):",
       "pages of doorbells need not be mapped"), DOORBELLS),
    (m("queues-doorbells-foreign", "queues/doorbells.py", "        if any([address_map.pid(frame) for frame in frames]):\n            raise OSError(errno.EFAULT, \"doorbells must stand in shared memory\")\n", "",
       "doorbells stand in another process's own memory"), DOORBELLS),
    (m("queues-doorbells-stale", "queues/doorbells.py", "        store64(address, 0)\n", "",
       "a place that is reserved again has its former entry"), DOORBELLS),
    (m("queues-message-just-fits", "queues/handshake.py", "if len(data) > MESSAGE_BYTES:", "if len(data) >= MESSAGE_BYTES:",
       "a message of just the most bytes is not made"), HANDSHAKE),
    (m("queues-refusal-of-another", "queues/handshake.py", "if not code and answered != message:", "if answered != message:",
       "a refusal counts only where it names the request"), HANDSHAKE),
    (m("queues-frame-beyond", "queues/handshake.py", "if 0 in frames or max(frames) >= 1 << 32:", "if 0 in frames or max(frames) > 1 << 32:",
       "a page frame has more than 32 bits"), HANDSHAKE),
    (m("queues-ring-gaps", "queues/ring.py", "list(range(first, first + len(pages) * PAGE_BYTES, PAGE_BYTES)) else 0", "sorted(pages) else 0",
       "pages that go upwards with gaps count as a single piece"), RING),
    (m("queues-ring-last-piece", "queues/ring.py", "if self.body_base and n <= self.body_bytes - offset:", "if self.body_base and n < self.body_bytes - offset:",
       "a body that ends with the store counts as two pieces"), RING),
    (m("queues-ring-place-of-others", "queues/ring.py", "if self.broken or n > self.layout.body_bytes - self.body_used or", "if self.broken or",
       "an entry is made over those that the consumer has not released"), RING),
    (m("queues-ring-place-anywhere", "queues/ring.py", " or self.body_tail & 7:", ":",
       "an entry is made where its words are not aligned"), RING),
    (m("queues-ring-head-believed", "queues/ring.py", "        if advance > ((self.tail - self.head) & MASK64):\n            self.broken = True\n            return\n", "",
       "the producer believes any head"), RING),
    (m("queues-ring-broken-goes-on", "queues/ring.py", "        if not self.broken:\n            self.refresh()\n        return (self.tail", "        self.refresh()\n        return (self.tail",
       "a broken producer reads its ring again"), RING),
    (m("queues-ring-body-beyond", "queues/ring.py", "n > capacity or n > self.layout.body_bytes or", "n > capacity or",
       "an entry is longer than the store"), RING),
    (m("queues-ring-idle-broken", "queues/ring.py", "if self.broken or self.seen != self.taken:", "if self.seen != self.taken:",
       "a broken ring counts as idle"), RING),
    (m("queues-ring-idle-seen", "queues/ring.py", "if self.broken or self.seen != self.taken:", "if self.broken:",
       "a ring is idle though entries that were seen stand in it"), RING),
    (m("queues-work-most-elements", "queues/wqe.py", "if not 0 <= max_sge <= MAX_SGES:", "if not 0 <= max_sge < MAX_SGES:",
       "the most elements are refused"), WORK),
    (m("queues-work-most-inline", "queues/wqe.py", "if not 0 <= max_inline_bytes <= MAX_INLINE_BYTES:", "if not 0 <= max_inline_bytes < MAX_INLINE_BYTES:",
       "the most inline bytes are refused"), WORK),
    (m("queues-work-beyond-buffer", "queues/wqe.py", "if n > self.capacity or n > length_of(data):", "if n > self.capacity:",
       "an entry is read from behind its buffer"), WORK),
    (m("queues-work-empty-fetch", "queues/wqe.py", "        if n > 0:\n            self.check(n)\n        return n", "        if n >= 0:\n            self.check(n)\n        return n",
       "an empty ring changes the entry that was fetched before"), WORK),
    (m("queues-work-receive-bytes", "queues/wqe.py", "        self.num_sge = 0\n        self.total_bytes = 0\n        self.wr_id = self.longs[abi.RECV", "        self.num_sge = 0\n        self.wr_id = self.longs[abi.RECV",
       "a refused receive has the bytes of the one before it"), WORK),
    (m("queues-work-send-bytes", "queues/wqe.py", "        self.num_sge = 0\n        self.total_bytes = 0\n        self.wr_id = self.longs[abi.SEND", "        self.num_sge = 0\n        self.wr_id = self.longs[abi.SEND",
       "a refused send has the bytes of the one before it"), WORK),
    (m("queues-work-element-count", "queues/wqe.py", "if n > capacity or elements > 0xFFFF:\n        return -1\n    _put_head", "if n > capacity:\n        return -1\n    _put_head",
       "more elements than can be counted are written"), WORK),
    (m("queues-operation-credit", "queues/operations.py", "\"SEND_ONLY_WITH_IMMEDIATE\"),\n              immediate=True, consumes_receive=True", "\"SEND_ONLY_WITH_IMMEDIATE\"),\n              immediate=True",
       "a SEND with immediate needs no credit"), WORK),
)
