; The receive queue's engine: checks of a received packet.  Link header, global header if there is one, base
; transport header (BTH), sequence number (PSN) against the context's, and the R_Key of an RDMA WRITE.
; The payload is let go: this is the part of a receive engine that says whether it may be taken.
;
; The verdict on a packet stands in r4 when the rest of the packet is dropped (RX_POP, 2):
; 0 accepted; 1 duplicate; 2 gap; 3 wrong headers; 4 no such queue pair; 5 opcode not handled; 6 key refused.

        .engine RQ
        .set    VIS, 256
        .set    VALID, 0x08000000       ; of a word of the remote-key memory
        .set    REMOTE_WRITE, 2         ; right that is asked of the page's entry
        .set    DUPLICATE, 1
        .set    GAP, 2
        .set    WRONG, 3
        .set    NO_QUEUE_PAIR, 4
        .set    NOT_HANDLED, 5
        .set    KEY_REFUSED, 6
        .set    KEY_EVENT, 0x06000000   ; tells the host: kind 6, and the queue pair

        .name   word, r0
        .name   opcode, r1
        .name   qp, r2
        .name   psn, r3
        .name   verdict, r4
        .name   context, r5             ; place of the queue pair's PSN in the context memory
        .name   expected, r6
        .name   key, r7
        .name   row, r8                 ; place of its write's key in the remote-key memory
        .name   mask, r9
        .name   vis, r10
        .name   count, r11
        .name   valid, r12

        move    mask, 0x00FFFFFF
        move    vis, VIS
        move    valid, VALID

next:   move    verdict, WRONG
wait:   bit     RX_STATUS, 31           ; a word is there
        jump.z  wait
        bit     RX_STATUS, 2            ; the FIFO found the headers wrong, or too short
        jump.nz drop
        bit     RX_STATUS, 0            ; not a packet's first word
        jump.z  drop

        move    word, RX_WORD           ; LRH: bits 17..16 are the link next header
        bit     word, 17                ; 2 local, 3 global, others have no BTH
        jump.z  drop
        move    RX_POP, 1
        move    RX_POP, 1
        bit     word, 16
        jump.z  base
        move    count, 10               ; GRH
global: move    RX_POP, 1
        sub     count, 1
        jump.nz global

base:   move    word, RX_WORD           ; BTH: opcode, flags, version, P_Key
        move    RX_POP, 1
        move    opcode, word
        ror     opcode, 24
        and     opcode, 0xFF
        and     word, 0x000F0000        ; transport version 0
        jump.nz drop
        move    qp, RX_WORD
        move    RX_POP, 1
        and     qp, mask
        move    psn, RX_WORD
        move    RX_POP, 1
        and     psn, mask
        move    verdict, NO_QUEUE_PAIR
        cmp     qp, vis
        jump.c  drop

        move    context, qp             ; word 32 of 64: the PSN that is expected
        shl     context, 6
        add     context, 32
        move    CONTEXT_ADDRESS, context
        move    expected, CONTEXT_DATA
        move    word, psn               ; how far ahead, in 24 bits
        sub     word, expected
        and     word, mask
        jump.z  in_order
        move    verdict, GAP
        bit     word, 23                ; half of all numbers are before
        move.nz verdict, DUPLICATE
        jump    drop

in_order:
        cmp     opcode, 6               ; 0 … 5: SEND
        jump.nc accept
        jump.z  keyed                   ; RDMA WRITE first
        cmp     opcode, 10              ; 7, 8, 9: middle, last, last with immediate
        jump.nc going_on
        cmp     opcode, 12              ; 10, 11: only, only with immediate
        jump.nc keyed
        move    verdict, NOT_HANDLED
        jump    drop

; A write begins: its key is entered first and looked up then.  A window is destroyed first and its keys are
; searched for then; so either this look-up finds it destroyed, or that search finds this key.
keyed:  move    RX_POP, 1               ; RETH: address, address, key, length
        move    RX_POP, 1
        move    key, RX_WORD
        move    RX_POP, 1
        move    RX_POP, 1
        call    own_row
        move    word, key
        and     word, 0x07FFFFFF
        or      word, valid
        move    RQ_KEY_DATA, word
        add     context, 2              ; word 34: the protection domain
        move    CONTEXT_ADDRESS, context
        move    TPT_PD, CONTEXT_DATA
        sub     context, 2
        move    CONTEXT_ADDRESS, context
        move    TPT_INDEX, key
        move    TPT_ACCESS, REMOTE_WRITE
look:   bit     TPT_RESULT, 31
        jump.z  look
        move    word, TPT_RESULT
        and     word, 0xFF
        jump.nz refuse
        cmp     opcode, 6               ; one packet alone is over with it
        jump.z  accept
        jump    leave

going_on:
        call    own_row
        bit     RQ_KEY_DATA, 27         ; still valid, or withdrawn meanwhile
        jump.z  refuse
        cmp     opcode, 7
        jump.z  accept
leave:  move    RQ_KEY_DATA, 0          ; the write is over

accept: move    verdict, 0
        add     psn, 1
        and     psn, mask
        move    CONTEXT_DATA, psn
        jump    drop

refuse: move    RQ_KEY_DATA, 0
        move    verdict, KEY_REFUSED
        move    word, KEY_EVENT
        or      word, qp
        move    EVENT_PUSH, word
drop:   move    RX_POP, 2
        jump    next

own_row:                                ; row 5·QP, slot 1: the write that is under way
        move    row, qp
        shl     row, 2
        add     row, qp
        add     row, 1
        move    RQ_KEY_ADDRESS, row
        return
