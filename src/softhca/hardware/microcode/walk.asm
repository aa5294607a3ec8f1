; The search for a key in microcode alone, without the remote-key manager: the design that was not chosen.
; It is the SQ's engine that does it, with the key memory on its bus, and nothing else meanwhile: the next queue
; pair has its turn behind the walk.  r14: protection domain, r15: key.  `send` walks so where ALONE is set.

        .engine SQ-ALONE
        .set    WORDS, 1280             ; 256 rows of a domain and four keys
        .name   mask, r1
        .name   last, r2
        .name   pd, r14
        .name   key, r15

        .include rows
        move    SCHEDULER_TAKE, 0
        halt
