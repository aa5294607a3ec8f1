"""Sizes of pages and slots, and the bits of frame numbers and of translation entries: each number once.

The build makes C constants of this module, which compiled modules cimport (``cimport softhca_bits as bits``);
interpreted, ``bits`` is this module.  Nothing is imported here: the build runs this file before anything is
compiled.
"""

PAGE_SHIFT = 12
PAGE_BYTES = 1 << PAGE_SHIFT
OFFSET_MASK = PAGE_BYTES - 1
"""The bits of an address, or of a place in a region, that say where in its page it is."""

# A frame number: its low bits are the page in a slot of the physical space, the bits above them the slot.
SLOT_SHIFT = 12
SLOT_PAGES = 1 << SLOT_SHIFT
SLOT_PAGE_MASK = SLOT_PAGES - 1
SLOT_BYTES = PAGE_BYTES * SLOT_PAGES
SLOTS = 1 << 20

# A translation entry: frame, protection domain, rights (the verbs' access bits), valid.  An entry of a
# pageable memory's table is one without domain and rights.
ENTRY_BYTES = 8
FRAME_MASK = 0xFFFF_FFFF
PD_SHIFT = 32
PD_MASK = 0xFF_FFFF
RIGHTS_SHIFT = 56
RIGHTS_MASK = 0x7F
VALID = 1 << 63
