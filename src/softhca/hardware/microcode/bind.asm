; The send queue's engine: a posted descriptor, and if it is a bind, what becomes of the window (figure 11).
; The search for the window's keys is the remote-key manager's; meanwhile the engine serves other queue pairs.
; Other descriptors complete with the status of an operation that is not handled: no transfer is built here.
;
; A descriptor has 64 bytes, of which these words count: 0: bits 7..0 the opcode; 1: the work request;
; of a bind 2: bit 0: invalidate the window, otherwise move it; 3: its key, an index of the page table;
; of a move 4, 5: the new entry, lower and upper word (its domain is the queue pair's, whatever is said).

        .engine SQ
        .set    FETCH, 0x0803           ; a descriptor, eight words of it
        .set    READ_ALONE, 0           ; no right is asked for: valid, and of this domain
        .set    BIND, 8
        .set    SUCCESS, 0
        .set    NOT_HANDLED, 2          ; completion statuses: operation, protection, window
        .set    NOT_READ, 4
        .set    NOT_BOUND, 6

        .name   word, r0
        .name   qp, r1
        .name   context, r2             ; place of the queue pair's words in the context memory
        .name   work, r3
        .name   status, r4
        .name   destroys, r5
        .name   key, r6
        .name   low, r7
        .name   high, r8
        .name   pd, r9
        .name   place, r10              ; of the window's entry in host memory, bits 31..0
        .name   moved, r11
        .name   searching, r12          ; a bind waits for the remote-key manager: these are its
        .name   bound_qp, r13
        .name   bound_work, r14
        .name   outcome, r15            ; of the bind that waits
        .name   opcode, r4              ; as long as there is no status

        move    searching, 0

; 1110: is a descriptor posted?  And is a search at its end?
idle:   bit     searching, 0
        jump.z  pending
        bit     RMB_DONE, 0
        jump.z  pending
        call    found
pending:
        move    qp, SCHEDULER_NEXT
        bit     qp, 31
        jump.z  idle
        and     qp, 0x00FFFFFF
        call    fetch
        jump.nz unread
        call    take
        move    opcode, word
        and     opcode, 0xFF
        call    take
        move    work, word

; 1112: is it a bind?  1114: no
        cmp     opcode, BIND
        jump.z  bind
        move    status, NOT_HANDLED
        jump    complete
unread: move    work, 0
        move    status, NOT_READ
complete:
        call    tell
        move    SCHEDULER_TAKE, 0
        jump    idle

; one search at a time: wait for the other, then see this queue pair's descriptor again
bind:   bit     searching, 0
        jump.z  window
other:  bit     RMB_DONE, 0
        jump.z  other
        call    found
        jump    pending

; the window must be there and this domain's
window: call    take
        move    destroys, word
        call    take
        move    key, word
        call    take
        move    low, word
        call    take
        move    high, word
        move    word, 4                 ; context word 4: domain
        call    look
        move    pd, CONTEXT_DATA
        move    TPT_PD, pd
        move    TPT_INDEX, key
        move    TPT_ACCESS, READ_ALONE
seek:   bit     TPT_RESULT, 31
        jump.z  seek
        move    status, NOT_BOUND
        move    word, TPT_RESULT
        and     word, 0xFF
        jump.nz complete
        move    place, TPT_ENTRY        ; the look-up says where the entry is, anywhere in 16 TiB
        move    HOST_ADDRESS_HIGH, TPT_ENTRY_HIGH

; 1116: is it to be invalidated?  1122: destroy it.  1118, 1120: record that it moves, and move it, so that no
; reader meets half of each: the upper word, which says valid, is cleared first and written last
        move    moved, 0
        add     place, 4
        move    HOST_DATA, 0
        call    store
        jump.nz complete
        move    outcome, SUCCESS
        bit     destroys, 0
        jump.nz search
        move    moved, 1
        and     high, 0xFF000000
        or      high, pd
        sub     place, 4
        move    HOST_DATA, low
        call    store
        jump.nz torn
        add     place, 4
        move    HOST_DATA, high
        call    store
        jump.z  search
torn:   move    outcome, NOT_BOUND      ; it is destroyed all the same: its keys must go

; 1124 to 1130: every operation that uses the window loses its key
search: move    RMB_PD, pd
        move    RMB_KEY, key
        move    RMB_START, 1
        move    searching, 1
        move    bound_qp, qp
        move    bound_work, work
        move    SCHEDULER_TAKE, 0       ; this queue pair waits, the others go on
        jump    idle

found:  move    searching, 0
        move    qp, bound_qp
        move    work, bound_work
        move    status, outcome
; completes a work request: queue in context word 5, head in word 1
tell:   bit     CQ_PUSH, 0
        jump.nz tell
        move    CQ_QP, qp
        move    CQ_WORK, work
        move    CQ_STATUS, status
        move    word, 5
        call    look
        move    CQ_PUSH, CONTEXT_DATA
        move    word, 1
        call    look
        move    word, CONTEXT_DATA
        add     word, 1
        move    CONTEXT_DATA, word
counted:
        bit     DOORBELL_POP, 0
        jump.nz counted
        move    DOORBELL_QP, qp
        move    DOORBELL_POP, 1
        return

; word ``word`` of the queue pair's context
look:   move    context, qp
        shl     context, 4
        add     context, word
        move    CONTEXT_ADDRESS, context
        return

; the descriptor at the head: base in context words 0 and 6 (bits 43..32), head in 1, number of places less
; one in 2; Z: it is there
fetch:  move    word, 2
        call    look
        move    place, CONTEXT_DATA
        move    word, 1
        call    look
        and     place, CONTEXT_DATA
        shl     place, 6
        move    word, 6
        call    look
        move    HOST_ADDRESS_HIGH, CONTEXT_DATA
        move    word, 0
        call    look
        add     place, CONTEXT_DATA
        add.c   HOST_ADDRESS_HIGH, 1
        move    HOST_ADDRESS, place
        move    word, FETCH
        jump    order

; HOST_DATA to ``place``; Z: it is done
store:  move    HOST_ADDRESS, place
        move    word, 2
order:  move    HOST_COMMAND, word
busy:   bit     HOST_STATUS, 0
        jump.nz busy
        bit     HOST_STATUS, 1
        return

take:   move    word, HOST_DESCRIPTOR_WORD
        move    HOST_DESCRIPTOR_POP, 1
        return
