; The receive queue's engine: requests of the peers with their payload, answers to ours, and the answers to RDMA
; READs, a packet of one in each turn.  Payload goes where a receive's descriptor or a key says, page by page, each
; looked up before its first byte is written.
;
; A receive's descriptor has 128 bytes as a send's: word 1: the work request, 16 … 31: the segments; immediate data
; are put into its word 2.
; The verdict on a packet stands in r4 when the rest of the packet is dropped (RX_POP, 2): 0 accepted; 1 duplicate;
; 2 gap; 3 wrong headers; 4 no such queue pair; 5 not handled; 6 key refused; 7 no receive posted; 8 local memory.

        .engine RQ
        .set    VIS, 256
        .set    VALID, 0x08000000       ; of a word of the remote-key memory
        .set    DUPLICATE, 1
        .set    GAP, 2
        .set    WRONG, 3
        .set    NO_QUEUE_PAIR, 4
        .set    NOT_HANDLED, 5
        .set    KEY_REFUSED, 6
        .set    NOT_POSTED, 7
        .set    LOCAL, 8
        .set    KEY_EVENT, 0x06000000   ; tells the host: kind 6, and the queue pair
        .set    LOCAL_WRITE, 0x101      ; rights, asked for by key
        .set    REMOTE_WRITE, 0x102
        .set    REMOTE_READ, 0x104
        .set    FETCH, 0x0203           ; a descriptor's first two words
        .set    FETCH_SEGMENTS, 0x1003
        .set    FINISH, 6
        .set    OUTWARD, 4
        .set    INWARD, 5
        .set    PAGE, 4096

        .set    ACK, 0x1F               ; syndromes: no word of credits
        .set    RNR, 0x21               ; 10 µs
        .set    NAK_GAP, 0x60
        .set    NAK_INVALID, 0x61
        .set    NAK_ACCESS, 0x62
        .set    NAK_LOCAL, 0x63
        .set    ALL_CAME, 0x40          ; tell the SQ's engine: what a READ asked for has come
        .set    OWN_FAULT, 0x7F         ; or could not be written here

        .set    SQ_HEAD, 1              ; words of the context: the SQ's
        .set    SQ_MASK, 2
        .set    SQ_DOMAIN, 4
        .set    SQ_BASE_HIGH, 6
        .set    PEER, 7
        .set    LINK, 8
        .set    SOURCE, 9
        .set    PKEY, 10
        .set    MTU, 11
        .set    PHASE, 13
        .set    LASTS, 22               ; what is under way: of a READ bit 31, the last PSN, and bit 30, which differs
                                        ; from RECEIVED's bit until its data have come
        .set    LENGTHS, 26             ; its bytes
        .set    PSN, 32                 ; and the RQ's: the PSN that is expected
        .set    BASE, 33
        .set    DOMAIN, 34
        .set    HEAD, 35
        .set    MASK, 36
        .set    QUEUE, 37
        .set    BASE_HIGH, 38
        .set    STATE, 39               ; bits 3..0: the message; bit 4: a gap was told
        .set    VA, 40                  ; where an RDMA WRITE goes on, its key, bytes left; of a SEND bytes taken
        .set    VA_HIGH, 41
        .set    KEY, 42
        .set    LEFT, 43
        .set    MSN, 44
        .set    ANSWER_PSN, 45          ; for the SQ's engine: bits 31..24 the count's lowest
        .set    ANSWER, 46
        .set    READ_VA, 47             ; the RDMA READ that is answered
        .set    READ_VA_HIGH, 48
        .set    READ_KEY, 49
        .set    READ_LEFT, 50
        .set    READ_PSN, 51
        .set    READ_STATE, 52          ; 0: none; 1: nothing of it has gone; 2: it goes on
        .set    FILLED, 53              ; of our own oldest READ: bytes that came, and the PSN that comes next, with
        .set    NEXT, 54                ; bit 31 where it has begun
        .set    SAVED, 55               ; four words: the packet that waits while a READ is answered

        .set    IMMEDIATE, 59           ; that came, and all bytes of the RDMA WRITE
        .set    TOTAL, 60
        .set    RECEIVED, 61            ; a bit for each of LASTS
        .set    WITH_IMMEDIATE, 0x40000000 ; in the flags
        .set    HAS_IMMEDIATE, 0x80     ; in a completion's status
        .set    IN_SEND, 1              ; states
        .set    IN_WRITE, 2
        .set    BROKEN, 3
        .set    WINDOW, 4               ; messages under way, at most
        .set    BEGUN, 0x80000000
        .set    IS_READ, 31

        .name   word, r0
        .name   opcode, r1
        .name   qp, r2
        .name   psn, r3
        .name   verdict, r4
        .name   context, r5
        .name   va, r6
        .name   va_high, r7
        .name   key, r8
        .name   length, r9
        .name   skip, r10
        .name   want, r11
        .name   bytes, r12
        .name   kind, r13               ; right that is asked for, and the command that moves
        .name   flags, r14              ; the third word of the BTH; afterwards free
        .name   chunk, r15

next:   bit     RX_STATUS, 31
        jump.nz packet
        move    qp, SCHEDULER_NEXT
        bit     qp, 31
        jump.z  next
        and     qp, 0x00FFFFFF
        call    own
        move    word, READ_STATE
        call    look
        cmp     CONTEXT_DATA, 0
        jump.z  rested
        call    respond
        move    word, READ_STATE
        call    look
        cmp     CONTEXT_DATA, 0
        jump.z  rested
again:  bit     WAKE, 0
        jump.nz again
        move    word, 0x80000000
        or      word, qp
        move    WAKE, word
rested: move    SCHEDULER_TAKE, 0
        jump    next

; link header, global header if there is one
packet: move    verdict, WRONG
        bit     RX_STATUS, 2            ; the FIFO found the headers wrong, or too short
        jump.nz drop
        bit     RX_STATUS, 0            ; not a packet's first word
        jump.z  drop
        move    word, RX_WORD
        bit     word, 17
        jump.z  drop
        move    RX_POP, 1
        move    RX_POP, 1
        bit     word, 16
        jump.z  base
        move    length, 10
global: move    RX_POP, 1
        sub     length, 1
        jump.nz global

; base transport header
base:   move    word, RX_WORD
        move    RX_POP, 1
        move    chunk, word
        move    opcode, word
        ror     opcode, 24
        and     opcode, 0xFF
        and     word, 0x000F0000
        jump.nz drop
        move    qp, RX_WORD
        move    RX_POP, 1
        and     qp, 0x00FFFFFF
        move    flags, RX_WORD
        move    RX_POP, 1
        and     flags, 0x80FFFFFF       ; what is reserved is not looked at
        move    psn, flags
        and     psn, 0x00FFFFFF
        move    verdict, NO_QUEUE_PAIR
        move    word, VIS
        cmp     qp, word
        jump.c  drop
        call    own
        move    word, DOMAIN
        call    look
        cmp     CONTEXT_DATA, 0
        jump.z  drop
        move    word, PKEY
        call    look
        move    word, chunk
        xor     word, CONTEXT_DATA
        and     word, 0x7FFF
        jump.nz drop
        ror     chunk, 20               ; bytes of pad
        and     chunk, 3
        move    verdict, NOT_HANDLED
        cmp     opcode, 13
        jump.c  answers
        move    word, STATE
        call    look
        move    length, CONTEXT_DATA
        move    word, length
        and     word, 15
        cmp     word, BROKEN
        jump.z  drop
        move    word, PSN               ; how far ahead, in 24 bits
        call    look
        move    word, psn
        sub     word, CONTEXT_DATA
        and     word, 0x00FFFFFF
        jump.z  in_order
        bit     word, 23                ; half of all numbers are before
        jump.nz before
        move    verdict, GAP
        bit     length, 4
        jump.nz drop
        or      length, 16
        move    word, STATE
        call    look
        move    CONTEXT_DATA, length
        move    word, PSN
        call    look
        move    psn, CONTEXT_DATA
        move    word, NAK_GAP
        call    answer
        jump    drop
before: move    verdict, DUPLICATE
        cmp     opcode, 12
        jump.z  anew
        move    word, PSN
        call    look
        move    psn, CONTEXT_DATA
        sub     psn, 1
        and     psn, 0x00FFFFFF
        move    word, ACK
        call    answer
        jump    drop

; the message goes on as it began?  ``skip`` is 0 where a message begins
in_order:
        call    drain
        move    word, STATE
        call    look
        move    skip, CONTEXT_DATA
        and     skip, 15
        cmp     skip, BROKEN            ; a READ's key was withdrawn just now
        jump.z  drop
        move    CONTEXT_DATA, skip
        cmp     opcode, 12
        jump.z  read
        cmp     opcode, 6
        jump.c  write

        cmp     opcode, 3               ; SEND
        jump.z  promptly
        cmp     opcode, 5
        jump.nz sends
promptly:
        call    immediate
sends:  cmp     opcode, 0
        jump.z  starts
        cmp     opcode, 4
        jump.z  starts
        cmp     skip, IN_SEND
        jump.nz invalid
        jump    sent
starts: cmp     skip, 0
        jump.nz invalid
        move    word, LEFT
        call    look
        move    CONTEXT_DATA, 0
sent:   move    DOORBELL_QP, qp
        bit     DOORBELL_QP, 31
        jump.nz posted
unposted:
        move    verdict, NOT_POSTED
        move    word, RNR
        call    answer
        jump    drop
posted: call    measure
        jump.nz invalid
        move    word, LEFT
        call    look
        move    skip, CONTEXT_DATA
        move    key, BASE               ; where the descriptors are
        move    kind, DOMAIN
        call    descriptor
        jump.nz local
        call    segments
        jump.nz local
        move    want, bytes
        move    kind, LOCAL_WRITE
        call    scatter
        jump.nz unfit
        move    word, LEFT
        call    look
        move    word, CONTEXT_DATA
        add     word, bytes
        move    CONTEXT_DATA, word
        move    length, word
        move    verdict, IN_SEND
        cmp     opcode, 2
        jump.nc moved
        move    word, 0
        call    complete
        jump.z  ended
        jump    unnoted

; RDMA WRITE
write:  cmp     opcode, 9               ; with immediate data: needs a receive
        jump.z  prompts
        cmp     opcode, 11
        jump.nz writing
prompts:
        move    DOORBELL_QP, qp
        bit     DOORBELL_QP, 31
        jump.z  unposted
        cmp     opcode, 9
        jump.nz latter                  ; behind the RDMA header
        call    immediate
        jump    writing
latter: sub     opcode, 1
        or      flags, WITH_IMMEDIATE
writing:
        cmp     opcode, 6
        jump.z  opens
        cmp     opcode, 10
        jump.z  opens
        cmp     skip, IN_WRITE
        jump.nz invalid
        call    measure
        jump.nz invalid
        move    chunk, 1
        call    own_row
        bit     RQ_KEY_DATA, 27         ; still valid, or withdrawn meanwhile
        jump.z  refuse
        jump    writes
opens:  cmp     skip, 0
        jump.nz invalid
        move    skip, chunk
        call    reth
        bit     flags, 30
        jump.z  plain
        call    kept
plain:  move    chunk, 1
        call    enter                   ; the key first, then the look: see header_check
        move    chunk, skip
        call    measure
        jump.nz invalid
        move    word, LEFT
        call    look
        move    CONTEXT_DATA, length
        move    word, TOTAL
        call    look
        move    CONTEXT_DATA, length
        move    word, VA
        call    look
        move    CONTEXT_DATA, va
        move    word, VA_HIGH
        call    look
        move    CONTEXT_DATA, va_high
        move    word, KEY
        call    look
        move    CONTEXT_DATA, key
        cmp     length, 0
        jump.z  writes
        move    kind, REMOTE_WRITE
        move    chunk, length
        call    allowed
        jump.nz refuse
writes: move    word, LEFT
        call    look
        cmp     CONTEXT_DATA, bytes
        jump.nc invalid                 ; more than was said
        move    length, bytes
        cmp     opcode, 8
        jump.z  closes
        cmp     opcode, 10
        jump.nz into
closes: cmp     CONTEXT_DATA, bytes     ; less than was said
        jump.nz invalid
into:   move    word, VA
        call    look
        move    va, CONTEXT_DATA
        move    word, VA_HIGH
        call    look
        move    va_high, CONTEXT_DATA
        move    word, KEY
        call    look
        move    key, CONTEXT_DATA
        move    kind, REMOTE_WRITE
        call    pieces
        jump.nz refuse
        move    word, VA
        call    look
        move    CONTEXT_DATA, va
        move    word, VA_HIGH
        call    look
        move    CONTEXT_DATA, va_high
        move    word, LEFT
        call    look
        move    word, CONTEXT_DATA
        sub     word, bytes
        move    CONTEXT_DATA, word
        move    verdict, IN_WRITE
        cmp     opcode, 8
        jump.z  leave
        cmp     opcode, 10
        jump.nz moved
leave:  move    chunk, 1
        call    own_row
        move    RQ_KEY_DATA, 0          ; the write is over
        bit     flags, 30
        jump.z  ended
        move    word, TOTAL
        call    look
        move    length, CONTEXT_DATA
        move    word, 0
        call    complete
        jump.nz unnoted
ended:  call    one_more
        move    verdict, 0
moved:  move    word, STATE
        call    look
        move    CONTEXT_DATA, verdict
        move    word, PSN
        call    look
        move    word, psn
        add     word, 1
        and     word, 0x00FFFFFF
        move    CONTEXT_DATA, word
        move    verdict, 0
        bit     flags, 31
        jump.z  taken
        move    word, ACK
        call    answer
taken:  add     psn, 1
drop:   move    RX_POP, 2
        jump    next

; RDMA READ: the key, the range; its packets go in turns of their own
read:   cmp     skip, 0
        jump.nz invalid
        call    reth
        call    permitted
        jump.nz refuse
        call    one_more
        call    span
        move    flags, psn
        add     flags, 1
        add     flags, length
        and     flags, 0x00FFFFFF
        move    word, PSN
        call    look
        move    CONTEXT_DATA, flags
        move    verdict, 0
        jump    taken

; a READ that was asked for before: its answers were lost
anew:   call    drain
        call    reth
        call    permitted
        jump.nz refuse
        move    verdict, DUPLICATE
        jump    drop

; Z: the range may be read, and the answer begins
permitted:
        move    chunk, 2
        call    enter
        move    kind, REMOTE_READ
        cmp     length, 0
        jump.z  starts_read
        move    chunk, length
        call    allowed
        return.nz
starts_read:
        move    word, READ_VA
        call    look
        move    CONTEXT_DATA, va
        move    word, READ_VA_HIGH
        call    look
        move    CONTEXT_DATA, va_high
        move    word, READ_KEY
        call    look
        move    CONTEXT_DATA, key
        move    word, READ_LEFT
        call    look
        move    CONTEXT_DATA, length
        move    word, READ_PSN
        call    look
        move    CONTEXT_DATA, psn
        move    word, READ_STATE
        call    look
        move    CONTEXT_DATA, 1
wakes:  bit     WAKE, 0
        jump.nz wakes
        move    word, 0x80000000
        or      word, qp
        move    WAKE, word
        cmp     word, word
        return

; refusals: the peer is told, the queue pair is at its end
unfit:  cmp     want, 0                 ; all segments are full, or one could not be written
        jump.z  local
        move    word, 1
        move    length, 0
        call    complete
        jump    invalid
local:  move    word, 4
        move    length, 0
        call    complete
unnoted:                                ; the host does not take the immediate data: it has been told
        move    verdict, LOCAL
        move    word, NAK_LOCAL
        jump    refused
invalid:
        move    verdict, NOT_HANDLED
        move    word, NAK_INVALID
        jump    refused
refuse: move    RQ_KEY_DATA, 0
        move    word, KEY_EVENT
        or      word, qp
        move    EVENT_PUSH, word
        move    verdict, KEY_REFUSED
        move    word, NAK_ACCESS
refused:
        call    answer
        move    word, STATE
        call    look
        move    CONTEXT_DATA, BROKEN
        jump    drop

; what peers answer: to requests (17), and to our RDMA READs (13 to 16)
answers:
        cmp     opcode, 17
        jump.z  verdicts
        cmp     opcode, 18
        jump.c  drop
        move    word, PHASE
        call    look
        move    word, CONTEXT_DATA
        cmp     word, BROKEN
        jump.z  drop
        move    verdict, DUPLICATE

; whose are they?  Of the oldest READ whose data have not come
        move    word, SQ_HEAD
        call    look
        move    skip, CONTEXT_DATA
        move    want, WINDOW
seeks:  move    kind, skip
        and     kind, 3
        move    word, LASTS
        add     word, kind
        call    look
        move    va, CONTEXT_DATA
        bit     va, IS_READ
        jump.z  other
        move    word, RECEIVED
        call    look
        move    word, CONTEXT_DATA
        ror     word, kind
        ror     word, 2
        xor     word, va
        bit     word, 30
        jump.nz found
other:  add     skip, 1
        sub     want, 1
        jump.nz seeks
        jump    drop
found:  move    word, va                ; not behind its last one
        sub     word, psn
        bit     word, 23
        jump.nz drop
        cmp     opcode, 13
        jump.z  first
        cmp     opcode, 16
        jump.z  first
        move    word, NEXT
        call    look
        move    word, psn
        or      word, BEGUN
        cmp     word, CONTEXT_DATA
        jump.nz drop
        jump    placed_read
first:  move    word, LENGTHS
        add     word, kind
        call    look
        move    length, CONTEXT_DATA
        call    span
        move    word, va
        sub     word, length
        xor     word, psn
        and     word, 0x00FFFFFF
        jump.nz drop
        move    word, NEXT
        call    look
        move    CONTEXT_DATA, psn
        or      CONTEXT_DATA, BEGUN
        move    word, FILLED
        call    look
        move    CONTEXT_DATA, 0
placed_read:
        cmp     opcode, 14
        jump.z  bare
        move    RX_POP, 1               ; its AETH
bare:   call    measure
        jump.nz drop
        move    flags, kind
        move    va_high, skip
        move    word, FILLED
        call    look
        move    skip, CONTEXT_DATA
        move    key, 0
        move    kind, SQ_DOMAIN
        call    descriptor
        jump.nz fault
        call    segments
        jump.nz fault
        move    want, bytes
        move    kind, LOCAL_WRITE
        call    scatter
        jump.nz fault
        move    word, FILLED
        call    look
        move    length, CONTEXT_DATA
        add     length, bytes
        move    CONTEXT_DATA, length
        move    word, NEXT
        call    look
        move    word, psn
        add     word, 1
        and     word, 0x00FFFFFF
        or      word, BEGUN
        move    CONTEXT_DATA, word
        move    verdict, 0
        cmp     opcode, 15
        jump.nc taken
        move    word, LENGTHS           ; all that was asked for?
        add     word, flags
        call    look
        cmp     length, CONTEXT_DATA
        jump.nz fault
        move    word, NEXT
        call    look
        move    CONTEXT_DATA, 0
        move    length, 1
        shl     length, flags
        move    word, RECEIVED
        call    look
        xor     CONTEXT_DATA, length
        move    length, ALL_CAME
        jump    tells
fault:  move    verdict, LOCAL
        move    length, OWN_FAULT
        jump    tells
verdicts:
        move    length, RX_WORD
        ror     length, 24
        and     length, 0xFF
        cmp     length, 0x40            ; not what the standard reserves
        jump.nc sound
        cmp     length, 0x60
        jump.nc drop
        cmp     length, 0x65
        jump.c  drop
sound:  move    verdict, 0
tells:  move    word, ANSWER
        call    look
        move    word, CONTEXT_DATA
        and     word, 0xFFFFFF00
        add     word, 0x100
        or      length, word
        shl     word, 16                ; the count's lowest bits beside the PSN: both words belong together
        or      word, psn
        move    key, word
        move    word, ANSWER_PSN
        call    look
        move    CONTEXT_DATA, key
        move    word, ANSWER
        call    look
        move    CONTEXT_DATA, length
told:   bit     WAKE, 0
        jump.nz told
        move    WAKE, qp
        jump    taken

; One packet that answers an RDMA READ.
respond:
        move    word, READ_KEY
        call    look
        move    key, CONTEXT_DATA
        move    word, READ_VA
        call    look
        move    va, CONTEXT_DATA
        move    word, READ_VA_HIGH
        call    look
        move    va_high, CONTEXT_DATA
        move    word, READ_PSN
        call    look
        move    psn, CONTEXT_DATA
        move    chunk, 2
        call    own_row
        bit     RQ_KEY_DATA, 27
        jump.z  withdrawn
        move    word, MTU
        call    look
        move    bytes, CONTEXT_DATA
        move    word, READ_LEFT
        call    look
        move    length, CONTEXT_DATA
        move    word, READ_STATE
        call    look
        move    opcode, 13              ; first, last 15, middle 14, only 16
        move    word, CONTEXT_DATA
        cmp     word, 1
        jump.nz resumed
        cmp     bytes, length
        jump.nc headed
        move    opcode, 16
        move    bytes, length
        jump    headed
resumed:
        move    opcode, 14
        cmp     bytes, length
        jump.nc headed
        move    opcode, 15
        move    bytes, length
headed: move    length, bytes
        add     length, 3
        and     length, 0xFFFFFFFC
        ror     length, 2
        add     length, 7
        cmp     opcode, 14
        jump.nz lined
        sub     length, 1
lined:  call    room
        move    word, 0
        sub     word, bytes
        and     word, 3
        shl     word, 4
        call    headers
        cmp     opcode, 14
        jump.z  filled
        call    aeth
        move    TX_PUSH, 0
filled: move    length, bytes
        move    kind, REMOTE_READ
        call    pieces
        jump.nz short
        move    word, FINISH
        call    order
        move    word, READ_VA
        call    look
        move    CONTEXT_DATA, va
        move    word, READ_VA_HIGH
        call    look
        move    CONTEXT_DATA, va_high
        move    word, READ_PSN
        call    look
        add     psn, 1
        and     psn, 0x00FFFFFF
        move    CONTEXT_DATA, psn
        move    word, READ_LEFT
        call    look
        move    word, CONTEXT_DATA
        sub     word, bytes
        move    CONTEXT_DATA, word
        move    length, 2
        cmp     opcode, 15
        jump.nc goes_on
        move    length, 0
        move    RQ_KEY_DATA, 0
goes_on:
        move    word, READ_STATE
        call    look
        move    CONTEXT_DATA, length
        return
short:  move    TX_PUSH, 2
withdrawn:
        move    RQ_KEY_DATA, 0
        move    word, READ_STATE
        call    look
        move    CONTEXT_DATA, 0
        move    word, STATE
        call    look
        move    CONTEXT_DATA, BROKEN
        move    word, KEY_EVENT
        or      word, qp
        move    EVENT_PUSH, word
        move    word, NAK_ACCESS
        jump    answer

; a READ's answers go before what is answered next
drain:  move    word, READ_STATE
        call    look
        cmp     CONTEXT_DATA, 0
        return.z
        move    word, SAVED
        call    look
        move    CONTEXT_DATA, opcode
        add     CONTEXT_ADDRESS, 1
        move    CONTEXT_DATA, psn
        add     CONTEXT_ADDRESS, 1
        move    CONTEXT_DATA, flags
        add     CONTEXT_ADDRESS, 1
        move    CONTEXT_DATA, chunk
drains: call    respond
        move    word, READ_STATE
        call    look
        cmp     CONTEXT_DATA, 0
        jump.nz drains
        move    word, SAVED
        call    look
        move    opcode, CONTEXT_DATA
        add     CONTEXT_ADDRESS, 1
        move    psn, CONTEXT_DATA
        add     CONTEXT_ADDRESS, 1
        move    flags, CONTEXT_DATA
        add     CONTEXT_ADDRESS, 1
        move    chunk, CONTEXT_DATA
        return

; an acknowledgement with syndrome ``word`` for ``psn``
answer: move    chunk, word
        move    word, opcode
        shl     word, 8                 ; the packet's opcode waits above
        or      chunk, word
        move    opcode, 17
        move    length, 7
        call    room
        move    word, 0
        call    headers
        move    opcode, chunk
        ror     opcode, 8
        and     opcode, 0xFF
        move    word, chunk
        and     word, 0xFF
        call    signed
        move    TX_PUSH, 1
        return

; waits until the send FIFO has room for ``length`` words
room:   move    word, TX_STATUS
        ror     word, 16
        and     word, 0xFFFF
        cmp     word, length
        jump.nc room
        return

; link header and BTH of ``opcode``, ``length`` words, pad ``word``
headers:
        move    key, word
        move    word, LINK
        call    look
        move    TX_WORD, CONTEXT_DATA
        move    TX_PUSH, 0
        move    word, SOURCE
        call    look
        shl     length, 16
        or      length, CONTEXT_DATA
        move    TX_WORD, length
        move    TX_PUSH, 0
        move    word, opcode
        shl     word, 8
        or      word, 0x40
        or      word, key
        move    length, word
        shl     length, 16
        move    word, PKEY
        call    look
        or      length, CONTEXT_DATA
        move    TX_WORD, length
        move    TX_PUSH, 0
        move    word, PEER
        call    look
        move    TX_WORD, CONTEXT_DATA
        move    TX_PUSH, 0
        move    TX_WORD, psn
        move    TX_PUSH, 0
        move    word, READ_KEY          ; where a READ's key was
        call    look
        move    key, CONTEXT_DATA
        return

; the AETH, which is yet to be pushed: syndrome ``word`` and the number of messages
aeth:   move    word, ACK
signed: shl     word, 24
        move    length, word
        move    word, MSN
        call    look
        or      length, CONTEXT_DATA
        move    TX_WORD, length
        return

; one message more is done
one_more:
        move    word, MSN
        call    look
        move    word, CONTEXT_DATA
        add     word, 1
        and     word, 0x00FFFFFF
        move    CONTEXT_DATA, word
        return

; a receive is done: status ``word``, ``length`` bytes.  Z: and its memory could be written, immediate data too
complete:
        move    chunk, word
        shl     length, 8
        or      length, chunk
        move    key, BASE
        call    descriptor              ; its work request
        move    word, 0
        call    drawn
        call    drawn
        move    skip, word
        bit     flags, 30
        jump.z  done
        cmp     chunk, 0
        jump.nz done
        add     HOST_ADDRESS, 8
        move    word, IMMEDIATE
        call    look
        move    HOST_DATA, CONTEXT_DATA
        move    word, 2
        call    order
        jump.z  noted
        or      length, 4
        jump    done
noted:  or      length, HAS_IMMEDIATE
done:   bit     CQ_PUSH, 0
        jump.nz done
        move    CQ_QP, qp
        move    CQ_WORK, skip
        move    CQ_STATUS, length
        move    word, QUEUE
        call    look
        move    CQ_PUSH, CONTEXT_DATA
        move    word, HEAD
        call    look
        move    word, CONTEXT_DATA
        add     word, 1
        move    CONTEXT_DATA, word
popped: bit     DOORBELL_POP, 0
        jump.nz popped
        move    DOORBELL_QP, qp
        move    DOORBELL_POP, 1
        bit     length, 2
        return

; takes the packet's immediate data; what else it has is as the opcode before says
immediate:
        sub     opcode, 1
        or      flags, WITH_IMMEDIATE
kept:   move    word, IMMEDIATE
        call    look
        move    CONTEXT_DATA, RX_WORD
        move    RX_POP, 1
        return

; the next word of a descriptor, if there is one
drawn:  bit     HOST_DESCRIPTOR, 31
        return.z
        move    word, HOST_DESCRIPTOR_WORD
        move    HOST_DESCRIPTOR_POP, 1
        return

; how many bytes the packet has (pad in ``chunk``), and whether so many are right for its place.  Z: they are
measure:
        move    bytes, RX_STATUS
        ror     bytes, 16
        and     bytes, 0x7FFF
        sub     bytes, 1
        shl     bytes, 2
        sub     bytes, chunk
        move    word, MTU
        call    look
        move    word, opcode            ; first and middle packets are full
        cmp     word, 13
        jump.nc requests
        cmp     word, 15
        jump.c  at_most
        jump    full
requests:
        cmp     word, 6
        jump.nc half
        sub     word, 6
half:   cmp     word, 2
        jump.nc full
at_most:
        cmp     CONTEXT_DATA, bytes
        jump.nc unlike
        cmp     word, word
        return
full:   cmp     CONTEXT_DATA, bytes
unlike: return

; RDMA header
reth:   move    va_high, RX_WORD
        move    RX_POP, 1
        move    va, RX_WORD
        move    RX_POP, 1
        move    key, RX_WORD
        move    RX_POP, 1
        move    length, RX_WORD
        move    RX_POP, 1
        return

; how many packets more than one a READ of ``length`` bytes takes; a path MTU is a power of two
span:   move    word, MTU
        call    look
        cmp     CONTEXT_DATA, length
        jump.c  single
        sub     length, 1
        move    want, CONTEXT_DATA
halve:  ror     length, 1
        and     length, 0x7FFFFFFF
        ror     want, 1
        cmp     want, 1
        jump.nz halve
        return
single: move    length, 0
        return

; the key is under way, in place ``chunk`` of the queue pair's row
enter:  call    own_row
        move    word, key
        and     word, 0x07FFFFFF
        or      word, VALID
        move    RQ_KEY_DATA, word
        return
own_row:
        move    word, qp
        shl     word, 2
        add     word, qp
        add     word, chunk
        move    RQ_KEY_ADDRESS, word
        return

; the descriptor at the head of the RQ (``key`` is BASE) or number ``va_high`` of the SQ (0), whose words of the
; context lie otherwise; Z: it is there
descriptor:
        cmp     key, 0
        jump.z  ours
        move    word, MASK
        call    look
        move    va, CONTEXT_DATA
        move    word, HEAD
        call    look
        and     va, CONTEXT_DATA
        move    word, BASE_HIGH
        jump    placed
ours:   move    word, SQ_MASK
        call    look
        move    va, CONTEXT_DATA
        and     va, va_high
        move    word, SQ_BASE_HIGH
placed: call    look
        move    HOST_ADDRESS_HIGH, CONTEXT_DATA
        shl     va, 7
        move    word, key
        call    look
        add     va, CONTEXT_DATA
        add.c   HOST_ADDRESS_HIGH, 1
        move    HOST_ADDRESS, va
        move    word, kind              ; whose domain its segments are checked for
        call    look
        move    TPT_PD, CONTEXT_DATA
        move    word, FETCH
        jump    order
segments:
        add     HOST_ADDRESS, 64
        add.c   HOST_ADDRESS_HIGH, 1
        move    word, FETCH_SEGMENTS
        jump    order

; ``want`` bytes of the packet into the segments, behind ``skip``.  Z: all of them; otherwise ``want`` is 0 where one
; could not be written
scatter:
        cmp     want, 0
        return.z
        bit     HOST_DESCRIPTOR, 31
        jump.z  overfull
        call    drawn
        move    va, word
        call    drawn
        move    va_high, word
        call    drawn
        move    key, word
        call    drawn
        move    length, word
        cmp     skip, length
        jump.nc fits
        sub     skip, length
        jump    scatter
fits:   add     va, skip
        add.c   va_high, 1
        sub     length, skip
        move    skip, 0
        cmp     want, length
        move.nc length, want
        sub     want, length
        call    walk
        jump.z  scatter
        move.keep want, 0               ; not Z
        return
overfull:
        cmp     want, 0
        return

; ``length`` bytes at ``va`` by ``key``, page by page, for the peer.  Z: all of them
pieces: move    word, DOMAIN
        call    look
        move    TPT_PD, CONTEXT_DATA
walk:   cmp     length, 0
        return.z
        move    word, va
        and     word, 0xFFF
        move    chunk, PAGE
        sub     chunk, word
        cmp     length, chunk
        move.nc chunk, length
        call    judged
        return.nz
        move    HOST_ADDRESS, TPT_ADDRESS
        move    HOST_ADDRESS_HIGH, TPT_ADDRESS_HIGH
        move    word, chunk
        shl     word, 8
        or      word, INWARD
        bit     kind, 2                 ; a READ's go out
        jump.z  moves
        sub     word, 1
moves:  call    order
        return.nz
        add     va, chunk
        add.c   va_high, 1
        sub     length, chunk
        jump    walk

; Z: the peer may do so with ``chunk`` bytes at ``va``
allowed:
        move    word, DOMAIN
        call    look
        move    TPT_PD, CONTEXT_DATA
judged: move    TPT_VA, va
        move    TPT_VA_HIGH, va_high
        move    TPT_LENGTH, chunk
        move    TPT_INDEX, key
        move    TPT_ACCESS, kind
wait:   bit     TPT_RESULT, 31
        jump.z  wait
        move    word, TPT_RESULT
        and     word, 0xFF
        return

order:  move    HOST_COMMAND, word
busy:   bit     HOST_STATUS, 0
        jump.nz busy
        bit     HOST_STATUS, 1
        return

; the queue pair's context, and word ``word`` of it
own:    move    context, qp
        shl     context, 6
        return
look:   move    CONTEXT_ADDRESS, context
        add     CONTEXT_ADDRESS, word
        return
