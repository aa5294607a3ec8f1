; The receive queue's engine before anything arrives: every row of the remote-key memory gets its queue pair's
; protection domain (context word 34) and no key.  Halts when it is done; the host then loads what receives.

        .engine RQ
        .set    VIS, 256
        .set    STRIDE, 64              ; words of a context

        .name   context, r0
        .name   row, r1
        .name   left, r2

        move    context, 34
        move    row, 0
        move    left, VIS
next:   move    CONTEXT_ADDRESS, context
        move    RQ_KEY_ADDRESS, row
        move    RQ_KEY_DATA, CONTEXT_DATA
        add     RQ_KEY_ADDRESS, 1
        move    RQ_KEY_DATA, 0
        add     RQ_KEY_ADDRESS, 1
        move    RQ_KEY_DATA, 0
        add     RQ_KEY_ADDRESS, 1
        move    RQ_KEY_DATA, 0
        add     RQ_KEY_ADDRESS, 1
        move    RQ_KEY_DATA, 0
        add     context, STRIDE
        add     row, 5
        sub     left, 1
        jump.nz next
        halt
