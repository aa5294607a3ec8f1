; The search for a key in microcode alone, without the remote-key manager: the design that was not chosen.
; It is the SQ's engine that does it, with the key memory on its bus, and nothing else meanwhile: the next queue
; pair has its turn behind the walk.  r14: protection domain, r15: key.
; A row that is another domain's costs 5 clocks, one of this domain 17, whatever its keys are.

        .engine SQ-ALONE
        .set    WORDS, 1280             ; 256 rows of a domain and four keys
        .set    VALID, 0x08000000
        .name   mask, r1                ; all of a word but its valid bit
        .name   last, r2
        .name   pd, r14
        .name   key, r15

        and     pd, 0x0FFFFFFF
        jump.z  over                    ; domain 0 is none
        move    mask, 0x07FFFFFF
        and     key, mask
        or      key, VALID              ; only valid words match
        move    last, WORDS
        move    RQ_KEY_ADDRESS, 0       ; reads the first row's domain
row:    cmp     RQ_KEY_DATA, pd
        jump.nz skip
        add     RQ_KEY_ADDRESS, 1       ; read the key
        cmp     RQ_KEY_DATA, key
        and.z   RQ_KEY_DATA, mask       ; clear its valid bit where it matches
        add     RQ_KEY_ADDRESS, 1
        cmp     RQ_KEY_DATA, key
        and.z   RQ_KEY_DATA, mask
        add     RQ_KEY_ADDRESS, 1
        cmp     RQ_KEY_DATA, key
        and.z   RQ_KEY_DATA, mask
        add     RQ_KEY_ADDRESS, 1
        cmp     RQ_KEY_DATA, key
        and.z   RQ_KEY_DATA, mask
        add     RQ_KEY_ADDRESS, 1       ; the next row's domain
        cmp     RQ_KEY_ADDRESS, last
        jump.nz row
        move    SCHEDULER_TAKE, 0
        halt
skip:   add     RQ_KEY_ADDRESS, 5
        cmp     RQ_KEY_ADDRESS, last
        jump.nz row
over:   move    SCHEDULER_TAKE, 0
        halt
