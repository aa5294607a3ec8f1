"""Bugs of the blocks of the adapter in gates, a few a file, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

GATES: tuple[tuple[Mutant, str], ...] = (
    (m("gates-mover-end-of-a-word", "hardware/payload_mover.py", "skip, here = address[:2], Signal(3)", "skip, here = Const(0, 2), Signal(3)",
       "pieces begin at words alone"), "hardware/test_hardware_payload_mover.py"),
    (m("gates-mover-writes-beside", "hardware/payload_mover.py", "self.bus.mask.eq(((Const(1, BYTES + 1) << here) - 1) << skip)", "self.bus.mask.eq(0xF << skip)",
       "bytes behind the piece are overwritten"), "hardware/test_hardware_payload_mover.py"),
    (m("gates-mover-takes-the-icrc", "hardware/payload_mover.py", "source.ready & ~source.last", "source.ready",
       "the ICRC is taken for payload"), "hardware/test_hardware_payload_mover.py"),
    (m("gates-mover-remembers-dropped", "hardware/payload_mover.py", "m.d.sync += [value.eq(0) for value in waiting]", "m.d.sync += waiting[0].eq(0)",
       "the next packet begins with bytes of the dropped one"), "hardware/test_hardware_payload_mover.py"),
    (m("gates-host-arbiter-starves", "hardware/host_interface.py", "for step in range(self.requesters, 0, -1):", "for step in range(1, self.requesters + 1):",
       "who had the bus has it again"), "hardware/test_hardware_host_interface.py"),
    (m("gates-host-arbiter-lets-go", "hardware/host_interface.py", "busy.eq(~self.host.done)", "busy.eq(0)",
       "a transaction changes its owner before its end"), "hardware/test_hardware_host_interface.py"),
    (m("gates-host-fetch-of-17-words", "hardware/host_interface.py", "(count > DESCRIPTOR_WORDS)", "(count > DESCRIPTOR_WORDS + 1)",
       "a descriptor of 17 words overwrites its first"), "hardware/test_hardware_host_interface.py"),
    (m("gates-host-past-the-end", "hardware/host_interface.py", "(end > 1 << ADDRESS_BITS)", "(end > 2 << ADDRESS_BITS)",
       "a descriptor wraps round the end of memory"), "hardware/test_hardware_host_interface.py"),
    (m("gates-completion-one-too-many", "hardware/completion_engine.py", "used >= (1 << size)", "used > (1 << size)",
       "an entry that was not read is overwritten"), "hardware/test_hardware_completion_engine.py"),
    (m("gates-completion-phase-stays", "hardware/completion_engine.py", "phase = ~(producer >> size)[0]", "phase = ~(producer >> MAX_LOG_ENTRIES)[0]",
       "the second round looks like the first one"), "hardware/test_hardware_completion_engine.py"),
    (m("gates-completion-goes-on-behind-overflow", "hardware/completion_engine.py", "m.d.sync += rings.stopped.bit_select(posting.queue, 1).eq(1)", "m.d.sync += rings.stopped.bit_select(posting.queue, 1).eq(0)",
       "a queue that has lost a completion goes on"), "hardware/test_hardware_completion_engine.py"),
    (m("gates-completion-failures-not-solicited", "hardware/completion_engine.py", "counts = posting.solicited | (posting.entry[2][:8] != 0)", "counts = posting.solicited",
       "who waits for solicited completions is not told of failures"), "hardware/test_hardware_completion_engine.py"),
    (m("gates-completion-event-stays-asked", "hardware/completion_engine.py", "m.d.comb += posting.event.eq(1)\n            m.d.sync += rings.arms[queue].eq(ARM_NONE)", "m.d.comb += posting.event.eq(1)",
       "one request gives events for ever"), "hardware/test_hardware_completion_engine.py"),
    (m("gates-completion-solicited-takes-back", "hardware/completion_engine.py", "((data == ARM_SOLICITED) & (rings.arms[queue] == ARM_NONE))", "(data == ARM_SOLICITED)",
       "asking for solicited ones takes the request for any back"), "hardware/test_hardware_completion_engine.py"),
)  # fmt: skip
"""Each with the tests that judge it."""
