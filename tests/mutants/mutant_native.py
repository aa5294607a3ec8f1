"""Bugs of the object that programs in C preload: its files of the rdma_cm device, and early memory."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

FILES = "native/preload/cm_file.c"
BUFFERS = "native/preload/buffers.c"
CONTROL = "runtime/fabric_control.py"
PRELOAD = "native/test_native_preload.py"
COMMANDED = "runtime/test_runtime_fabric_control.py"

NATIVE: tuple[tuple[Mutant, str], ...] = (
    (m("native-file-forgotten-without-a-look", FILES, "if (!file || file_of(descriptor) || !atomic", "if (!file || !atomic",
       "a file that another thread opens under a number is forgotten with the former one"), PRELOAD),
    (m("native-file-forgotten-under-its-own-lock", FILES, "if (!file && !has_lock) {", "if (!file) {",
       "a thread waits for the lock that it has"), PRELOAD),
    (m("native-file-closes-strangers", FILES, "if (!inode_of(descriptor, &found) && found == inode)", "(void)inode, (void)found;",
       "after close_range the numbers of a file that goes are others'"), PRELOAD),
    (m("native-file-byte-for-each-event", FILES, "    if (!file->token) {\n        file->token = 1;", "    {\n        file->token = 1;",
       "a descriptor stays readable behind its last event"), PRELOAD),
    (m("native-file-no-second-byte", FILES, "    if (file->first) {\n        file->token = 1;\n        send(file->other, \"\", 1, MSG_DONTWAIT | MSG_NOSIGNAL);\n    } else {", "    if (!file->first) {",
       "who has taken one of two events sleeps"), PRELOAD),
    (m("native-file-last-event-stays-last", FILES, "    if (file->last == &event->next)\n        file->last = each;\n", "",
       "an event behind one that was dropped is written into freed memory"), PRELOAD),
    (m("native-file-moved-events-wake", FILES, "    from->last = each;\n    settle(from);\n", "    from->last = each;\n",
       "a descriptor whose events went elsewhere stays readable"), PRELOAD),
    (m("native-file-byte-taken-from-an-event", FILES, "if (!file->first && file->token && recv", "if (file->token && recv",
       "an event that waits beside one that is dropped wakes nobody"), PRELOAD),
    (m("native-file-child-of-the-former-file", FILES, "            if (event->child)\n                event->child->file = to;\n", "",
       "a connection whose request has moved belongs to the former file"), PRELOAD),
    (m("native-file-group-s-events-uncounted", FILES, "    if (event->group)\n        event->group->events_reported++;\n", "",
       "who leaves a group is told too few events, and does not wait for their acknowledgement"), PRELOAD),
    (m("native-file-length-by-one", FILES, "header.in > bytes - sizeof header", "header.in > bytes - sizeof header + 1",
       "a command reads one byte behind what was written"), PRELOAD),
    (m("native-file-ends-under-who-waits", FILES, "|| file->ended || atomic_load(&file->users))", "|| file->ended)",
       "who waits for events before a close reads a closed descriptor"), PRELOAD),
    (m("native-file-ends-twice", FILES, "file->descriptor >= 0 || file->ended || atomic_load", "file->descriptor >= 0 || atomic_load",
       "a file that two finish is in the list of unused ones twice"), PRELOAD),
    (m("native-early-realloc-reads-on", BUFFERS, "        held = early_room(block);\n    else if", "        held = EARLY_BYTES - (size_t)((unsigned char *)block - early);\n    else if",
       "early memory that grows brings what stands behind it"), PRELOAD),
    (m("native-early-memory-not-aligned", BUFFERS, "next_memalign(alignment, bytes) : early_block(bytes, alignment);", "next_memalign(alignment, bytes) : NULL;",
       "aligned memory cannot be had while the next allocator is looked up"), PRELOAD),
    (m("native-early-calloc-overflows", BUFFERS, "overflows ? SIZE_MAX : bytes", "count * each",
       "an early calloc of too much is a short block"), PRELOAD),
    (m("fabric-control-reads-on", CONTROL, "reads=not waiting", "reads=True",
       "requests of who takes no answers are carried out without a bound"), COMMANDED),
    (m("fabric-control-answer-stays", CONTROL, "writes=bool(waiting)", "writes=False",
       "an answer that had no room is never sent"), COMMANDED),
    (m("fabric-control-remembers-who-went", CONTROL, "        self._waiting.pop(made, None)\n        made.close()", "        made.close()",
       "who goes while an answer waits leaves it behind"), COMMANDED),
)  # fmt: skip
