"""Bugs of the adapter in gates and of its microcode, with the tests that judge them."""

# ruff: noqa: E501 - texts of the source stand here as they are

from __future__ import annotations

from mutant_edits import Mutant
from mutant_edits import mutant as m

SENDS = "hardware/microcode/send.asm"
RECEIVES = "hardware/microcode/receive.asm"
TIMER = "hardware/retry_timer.py"
SCHEDULER = "hardware/work_scheduler.py"
BY_SENDING = "hardware/test_hardware_microcode_send.py"
BY_RECEIVING = "hardware/test_hardware_microcode_receive.py"
BY_TIMER = "hardware/test_hardware_retry_timer.py"
BY_SCHEDULING = "hardware/test_hardware_scheduling.py"
BY_LISTS = "hardware/test_hardware_scheduler_lists.py"

HARDWARE: tuple[tuple[Mutant, str], ...] = (
    (m("gates-try-once-more", SENDS, ".set    MOST_TRIES, 8", ".set    MOST_TRIES, 9",
       "a message goes nine times"), BY_SENDING),
    (m("gates-deadline-a-unit-early", SENDS, "        add     low, 1                  ; the unit that has begun\n", "",
       "an answer has up to a unit less than it may take"), BY_SENDING),
    (m("gates-deadline-does-not-wrap", SENDS, "        add     low, 1                  ; the unit that has begun\n        and     low, 0x00FFFFFF\n", "        add     low, 1\n",
       "near the clock's wrap a deadline is never over"), BY_SENDING),
    (m("gates-rnr-ten-microseconds-are-one-unit", SENDS, "        move    length, 2               ; 10 µs as 30\n", "        move    length, 1\n",
       "the shortest delay is taken for a shift by 2^31"), BY_SENDING),
    (m("gates-rnr-zero-is-the-shortest", SENDS, "        move    status, 32\ntimed:", "timed:",
       "who asks for 655 ms is asked again at once"), BY_SENDING),
    (m("gates-rnr-odd-delays-as-even-ones", SENDS, "        move    low, 8\n        sub     length, 1\n        jump.nz even\n", "        sub     length, 1\n        jump.nz even\n        move    low, 8\n",
       "half of the delays are too short"), BY_SENDING),
    (m("gates-rnr-counts-as-a-try", SENDS, "        cmp     phase, RESTING\n        jump.z  rewind\n", "",
       "a peer that is not ready eight times is given up"), BY_SENDING),
    (m("gates-do-not-rest", SENDS, "        cmp     phase, RESTING\n        jump.z  running\n", "",
       "without a timer a message that was not ready never goes again"), BY_SENDING),
    (m("gates-go-on-behind-a-gap", SENDS, "        move    CONTEXT_DATA, low\n        move    word, UNDER_WAY\n", "        move    word, UNDER_WAY\n",
       "what is sent again has new PSNs"), BY_SENDING),
    (m("gates-heed-an-answer-twice", SENDS, "newest: move    word, SEEN\n        call    look\n        move    CONTEXT_DATA, status\n", "newest:\n",
       "one NAK sends a message again and again"), BY_SENDING),
    (m("gates-believe-any-acknowledgement", SENDS, "before: cmp     chunk, low\n        jump.nc acknowledged\n", "before: jump    acknowledged\n",
       "a message has succeeded when its first packet has"), BY_SENDING),
    (m("gates-believe-another-messages-answer", SENDS, "        cmp     va, low\n        jump.nc foreign                 ; of nothing that has gone\n", "",
       "an old acknowledgement ends a new message"), BY_SENDING),
    (m("gates-end-a-read-without-data", SENDS, "        jump.z  no_news\n        cmp     word, 0x20\n", "        jump.z  arrived\n        cmp     word, 0x20\n",
       "an acknowledgement ends a READ"), BY_SENDING),
    (m("gates-send-two-gib", SENDS, "summed: bit     length, 31              ; 2 GiB and more are no message\n        jump.nz unlike\n", "summed:\n",
       "a message of 2 GiB begins"), BY_SENDING),
    (m("gates-go-on-behind-a-refusal", SENDS, "        move.nz low, BROKEN\n", "",
       "what follows a refused request is sent"), BY_SENDING),
    (m("gates-own-fault-is-the-peers", SENDS, "        jump.z  local\n        add     status, REFUSED", "        add     status, REFUSED",
       "memory that cannot be written here is said to be refused there"), BY_SENDING),
    (m("gates-five-under-way", SENDS, ".set    WINDOW, 4 ", ".set    WINDOW, 5 ",
       "a fifth message takes the first one's place"), BY_SENDING),
    (m("gates-one-under-way", SENDS, ".set    WINDOW, 4 ", ".set    WINDOW, 1 ",
       "each message waits for the one before"), BY_SENDING),
    (m("gates-refused-is-acknowledged", SENDS, "        jump.nz before\n        add     low, 1 ", "        add     low, 1 ",
       "a message whose last packet was refused has succeeded"), BY_SENDING),
    (m("gates-gap-forgets-only-psns", SENDS, "        move    CONTEXT_DATA, 0\n        move    under, 0\n", "",
       "behind a gap what is under way does not go again"), BY_SENDING),
    (m("gates-read-beside-others", SENDS, "        jump.nz dormant\n        cmp     opcode, READ\n", "        cmp     opcode, READ\n",
       "a READ goes while the descriptor at the head is another's"), BY_SENDING),
    (m("gates-half-an-answer", SENDS, "        jump.nz no_news\n        move    word, FIRST\n", "        move    word, FIRST\n",
       "a refusal's PSN is taken for acknowledged"), BY_SENDING),
    (m("gates-tries-of-all-messages", SENDS, "        move    CONTEXT_DATA, 0\n        call    in_time\n", "        call    in_time\n",
       "tries of messages that have succeeded count"), BY_SENDING),
    (m("gates-deadline-of-the-newest", SENDS, "        cmp     under, 1                ; the oldest one's time begins\n        jump.nz next\n", "",
       "who posts often enough never sees that an answer is late"), BY_SENDING),
    (m("gates-next-one-has-the-rest", SENDS, "        move    CONTEXT_DATA, 0\n        call    in_time\n", "        move    CONTEXT_DATA, 0\n",
       "a message has what was left of the time of the one before"), BY_SENDING),
    (m("gates-fail-out-of-order", SENDS, "        jump.z  finish\n        jump    waits\n", "        jump    finish\n",
       "the oldest message fails for memory of a later one"), BY_SENDING),
    (m("gates-other-descriptor-again", SENDS, "        cmp     phase, IDLE             ; it was one of these when it went\n        jump.nz unlike\n", "",
       "what follows a descriptor that has changed takes its PSNs"), BY_SENDING),
    (m("gates-one-last-psn", SENDS, "        and     chunk, 3\n        move    word, LASTS\n", "        and     chunk, 0\n        move    word, LASTS\n",
       "of four messages one end is known"), BY_SENDING),
    (m("gates-sleep-with-work", SENDS, "        jump.c  dormant\n        jump    later\n", "        jump    dormant\n",
       "what was posted with the message before is not sent"), BY_SENDING),
    (m("gates-rest-with-others-under-way", SENDS, "        move    CONTEXT_DATA, RESTING\n        move    word, UNDER_WAY\n        call    look\n        move    CONTEXT_DATA, 0\n", "        move    CONTEXT_DATA, RESTING\n",
       "a turn of who rests looks for news of what is to go again"), BY_SENDING),
    (m("gates-answers-psn-alone", RECEIVES, "        shl     word, 16                ; the count's lowest bits beside the PSN: both words belong together\n", "        move    word, 0\n",
       "whether PSN and answer belong together cannot be told"), BY_RECEIVING),
    (m("gates-acknowledge-unnoted-send", RECEIVES, "        jump.z  ended\n        jump    unnoted\n", "        jump    ended\n",
       "a SEND is acknowledged whose immediate data the host does not take"), BY_RECEIVING),
    (m("gates-acknowledge-unnoted-write", RECEIVES, "        call    complete\n        jump.nz unnoted\nended:", "        call    complete\nended:",
       "a WRITE is acknowledged whose immediate data the host does not take"), BY_RECEIVING),
    (m("gates-lose-immediate-data", RECEIVES, "noted:  or      length, HAS_IMMEDIATE\n", "noted:\n",
       "a completion does not tell of immediate data"), BY_RECEIVING),
    (m("gates-tell-a-gap-again", RECEIVES, "        or      length, 16\n", "",
       "each packet behind a gap is answered with a NAK"), BY_RECEIVING),
    (m("gates-acknowledge-what-is-ahead", RECEIVES, "        sub     psn, 1\n        and     psn, 0x00FFFFFF\n        move    word, ACK\n        call    answer\n        jump    drop\n", "        move    word, ACK\n        call    answer\n        jump    drop\n",
       "a duplicate is answered with an acknowledgement of what has not come"), BY_RECEIVING),
    (m("gates-refuse-with-half-a-message-counted", RECEIVES, "        bit     length, 2\n        return\n", "        bit     length, 0\n        return\n",
       "the host's refusal is not seen, or a long message's is"), BY_RECEIVING),
    (m("gates-timer-forgets-whom-it-has-met", TIMER, "note.data.eq(later)", "note.data.eq(0)",
       "nobody who waits has a later turn"), BY_TIMER),
    (m("gates-timer-never-forgets", TIMER, "note.data.eq(later)", "note.data.eq(1)",
       "who has waited once has turns for ever"), BY_TIMER),
    (m("gates-timer-overtakes-doorbells", TIMER, "self.put.qp.eq(Mux(self.ring.valid, self.ring.qp, number))", "self.put.qp.eq(Mux(due, number, self.ring.qp))",
       "a doorbell is taken for another queue pair's"), BY_TIMER),
    (m("gates-timer-drops-a-turn-that-waits", TIMER, "with m.Elif(due & ~self.ring.valid & self.put.ready):", "with m.Elif(due & self.put.ready):",
       "a turn is lost where a doorbell is taken"), BY_TIMER),
    (m("gates-timer-takes-strangers", TIMER, "note.en.eq((later & (write.data[:24] < self.vis)) | steps)", "note.en.eq(later | steps)",
       "a queue pair that does not exist wakes another one"), BY_TIMER),
    (m("gates-scheduler-links-an-empty-level", SCHEDULER, "write_link.en.eq(waiting.bit_select(asked, 1)),", "write_link.en.eq(1),",
       "a level's last one takes another level's list with it"), BY_LISTS),
    (m("gates-scheduler-waits-twice", SCHEDULER, "with m.If(~waits_here.data):", "with m.If(1):",
       "a queue pair that waits already breaks its list"), BY_LISTS),
    (m("gates-scheduler-starves-the-low", SCHEDULER, "rotates.eq(spends & (high_bytes >= HIGH_LIMIT_BYTES)),", "rotates.eq(0),",
       "a low level waits for ever"), BY_SCHEDULING),
    (m("gates-scheduler-always-the-same-low", SCHEDULER, "Mux(rotates, Mux(below != 0, _top(m, below, \"below\"), _top(m, lower, \"lower\")), highest)", "Mux(rotates, _top(m, lower, \"lower\"), highest)",
       "of the low levels only the highest has turns"), BY_SCHEDULING),
)  # fmt: skip
"""Each with the tests that judge it."""
