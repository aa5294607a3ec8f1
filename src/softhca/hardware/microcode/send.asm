; The send queue's engine: a queue pair's turn sends one packet of its message, looks what the peer answered, or
; binds a window (figure 11).  What would have to wait gives its turn back and asks for another one: room in the
; send FIFO, the peer's answer, the end of another search.  Of a queue pair up to four messages are under way: they
; have gone, and the peer has neither acknowledged them nor, of a READ, sent all that was asked for.  A READ waits where
; as many are under way as may be, a message with the fence while one is; a bind and what cannot go wait until nothing is
; under way.
;
; A descriptor has 128 bytes.  Words 0: bits 7..0 the opcode (1 SEND, 3 RDMA WRITE, 4 RDMA READ, 8 bind; 2 SEND, 5
; RDMA WRITE with immediate data, which are word 2), bit 8: the fence; 1: the work request; of RDMA 3: R_Key, 4, 5:
; remote address, lower and upper word; 16 … 31: four segments of address (lower, upper word), key and length.
; Of a bind 2: bit 0: invalidate the window, otherwise move it; 3: its key; of a move 4, 5: the new entry, lower and
; upper word (its domain is the queue pair's, whatever is said).

; With ALONE the adapter has no remote-key manager: a bind searches the key memory itself, of WORDS words, while
; the RQ's engine stands.

        .set    ALONE, 0
        .if ALONE
        .engine SQ-ALONE
        .set    WORDS, 1280
        .else
        .engine SQ
        .end
        .set    FETCH, 0x0803           ; a descriptor's first eight words
        .set    FETCH_SEGMENTS, 0x1003  ; its segments
        .set    FINISH, 6               ; the packet in the send FIFO is complete
        .set    PAYLOAD, 4
        .set    PAGE, 4096
        .set    READ_ALONE, 0           ; no right is asked for: valid, and of this domain
        .set    BY_KEY, 0x100
        .set    SEND, 1
        .set    SEND_IMMEDIATE, 2
        .set    WRITE, 3
        .set    WRITE_IMMEDIATE, 5
        .set    READ, 4
        .set    BIND, 8
        .set    SUCCESS, 0
        .set    NOT_HANDLED, 2          ; completion statuses: operation, protection, flushed, window
        .set    NOT_READ, 4
        .set    FLUSHED, 5
        .set    NOT_BOUND, 6
        .set    REFUSED, 8              ; and the code of the peer's refusal: 9, 10, 11
        .set    GAVE_UP, 12
        .set    MOST_TRIES, 8
        .set    WINDOW, 4               ; messages under way, at most

        .set    HEAD, 1                 ; words of the context
        .set    MASK, 2
        .set    PSN, 3
        .set    DOMAIN, 4
        .set    QUEUE, 5
        .set    BASE_HIGH, 6
        .set    PEER, 7
        .set    LINK, 8                 ; the first word of a link header
        .set    SOURCE, 9               ; source LID
        .set    PKEY, 10
        .set    MTU, 11
        .set    SENT, 12                ; bytes of the message that have gone
        .set    PHASE, 13
        .set    FIRST, 14               ; PSN of the oldest message's first packet, and of the last one so far
        .set    LAST, 15
        .set    LENGTH, 16              ; of the message that is begun
        .set    SEEN, 17                ; the answer that was looked at last
        .set    TRIES, 18               ; of the oldest message, as the deadline is
        .set    TIMEOUT, 19             ; of an answer: 4.096 µs · 2^n, 0: none
        .set    DEADLINE, 20
        .set    UNDER_WAY, 21           ; messages that have gone and are not acknowledged; HEAD is the oldest one
        .set    LASTS, 22               ; four words: the PSN that each of them ends with, by descriptor; of a READ
                                        ; with bit 31, and bit 30: its data have come where RECEIVED's bit is the same
        .set    LENGTHS, 26             ; four words: bytes of a READ
        .set    READS, 30               ; READs under way, at most; one goes always
        .set    RECEIVED, 61            ; the RQ's engine turns a READ's bit when its data have come
        .set    ANSWER_PSN, 45          ; the RQ's engine tells: a PSN, bits 31..24 the count's lowest
        .set    ANSWER, 46              ; bits 7..0 the syndrome, above them a count

        .set    IDLE, 0                 ; phases: no message is begun
        .set    SENDING, 1              ; one is, behind those under way
        .set    BROKEN, 3
        .set    RESTING, 5              ; no receive was posted: again later
        .set    LATER, 0x40000000
        .set    REPLIES, 0xE0           ; of a syndrome: 0 acknowledged, 0x20 not ready, 0x40 a READ's data have come
        .set    FENCE, 8                ; bits
        .set    IS_READ, 31

        .name   word, r0
        .name   qp, r1
        .name   context, r2             ; place of the queue pair's words in the context memory
        .name   work, r3
        .name   chunk, r3
        .name   status, r4
        .name   opcode, r4              ; as long as there is no status
        .name   destroys, r5            ; of a bind
        .name   key, r6
        .name   low, r7
        .name   high, r8
        .name   pd, r9
        .name   oldest, r9              ; the last PSN of the oldest message, and what else its word says
        .name   place, r10              ; of the window's entry in host memory, bits 31..0
        .name   moved, r11
        .if ALONE
        .name   mask, r7                ; of the search, when the new entry is written
        .name   last, r8
        .end
        .name   va, r5                  ; of a message
        .name   va_high, r7
        .name   length, r8
        .name   skip, r9
        .name   want, r10
        .name   under, r10              ; messages under way, until a packet is made
        .name   flags, r11              ; bit 0: the message's last packet; bit 1: its first
        .name   phase, r11              ; until a packet is made
        .name   searching, r12          ; a bind waits: 1 for the remote-key manager, 2 for the RQ's packet
        .name   bound_qp, r13
        .name   bound_work, r14
        .name   outcome, r15            ; of the bind that waits; from bit 8 on what the RQ's engine was at

        move    searching, 0

; 1110: is a descriptor posted?  And is a search at its end?
idle:   call    watch
        move    qp, SCHEDULER_NEXT
        bit     qp, 31
        jump.z  idle
        and     qp, 0x00FFFFFF
        move    context, qp
        shl     context, 6
        move    word, PHASE
        call    look
        move    phase, CONTEXT_DATA
        cmp     phase, BROKEN
        jump.z  flush
        move    word, UNDER_WAY
        call    look
        move    under, CONTEXT_DATA
        move    word, phase
        or      word, under
        jump.nz going_on

; What comes next, if there is room for it?  A phase that is not 0: the oldest message, again
start:  cmp     under, WINDOW
        jump.z  dormant
        move    DOORBELL_QP, qp
        cmp     under, DOORBELL_COUNT
        jump.c  dormant
        call    fetch_next
        jump.nz unread
        call    take
        move    opcode, word
        call    take
        move    work, word
        bit     opcode, FENCE
        jump.z  unfenced
        call    reads
        jump.nz dormant
unfenced:
        and     opcode, 0xFF
        cmp     opcode, SEND
        jump.z  begin
        cmp     opcode, WRITE
        jump.z  begin
        cmp     opcode, SEND_IMMEDIATE
        jump.z  begin
        cmp     opcode, WRITE_IMMEDIATE
        jump.z  begin
        cmp     opcode, READ
        jump.nz alone
        call    reads
        jump.z  begin
        move    word, READS
        call    look
        cmp     low, CONTEXT_DATA
        jump.nc begin
        jump    dormant
alone:  cmp     under, 0
        jump.nz dormant
        cmp     phase, IDLE             ; it was one of these when it went
        jump.nz unlike

; 1112: is it a bind?  1114: no
        cmp     opcode, BIND
        jump.z  bind
        move    status, NOT_HANDLED
        jump    complete
unread: move    work, 0
unlike: move    status, NOT_READ
        cmp     under, 0
        jump.nz dormant
        cmp     phase, IDLE
        jump.nz finish
        jump    complete

flush:  move    DOORBELL_QP, qp
        bit     DOORBELL_QP, 31
        jump.z  over
        move    status, FLUSHED
named:  call    fetch
        jump.nz nameless
        call    take
        call    take
        move    work, word
        jump    complete
nameless:
        move    work, 0
        move    status, NOT_READ
complete:
        call    tell
over:   move    SCHEDULER_TAKE, 0
        jump    idle

; a later turn
later:  bit     WAKE, 0
        jump.nz later
        move    WAKE, qp
        jump    over

; nothing more to send: a turn comes with an answer, or in time
dormant:
        cmp     under, 0
        jump.z  over
waits:  move    word, TIMEOUT
        call    look
        cmp     CONTEXT_DATA, 0
        jump.z  over
asleep: move    word, LATER
        or      word, qp
        move    WAKE, word
        jump    over

; A message begins: how long is it?
begin:  call    segments
        jump.nz unlike
        move    length, 0
sum:    bit     HOST_DESCRIPTOR, 31
        jump.z  summed
        call    take
        call    take
        call    take
        call    take
        add     length, word
        jump.c  unlike
        jump    sum
summed: bit     length, 31              ; 2 GiB and more are no message
        jump.nz unlike
        move    word, LENGTH
        call    look
        move    CONTEXT_DATA, length
        move    word, phase
        or      word, under
        jump.nz begun
        move    word, ANSWER            ; what was answered before it began is not about it
        call    look
        move    low, CONTEXT_DATA
        move    word, SEEN
        call    look
        move    CONTEXT_DATA, low
        move    word, PSN
        call    look
        move    low, CONTEXT_DATA
        move    word, FIRST
        call    look
        move    CONTEXT_DATA, low
        move    word, TRIES
        call    look
        move    CONTEXT_DATA, 0
begun:  move    word, SENT
        call    look
        move    CONTEXT_DATA, 0
        move    word, PHASE
        call    look
        move    CONTEXT_DATA, SENDING
        jump    packet

; A message is under way: has the peer answered?  Whether a READ's data have come is looked at behind the answer,
; which the RQ's engine tells after that.
going_on:
        move    word, ANSWER
        call    look
        move    status, CONTEXT_DATA
        move    word, ANSWER_PSN
        call    look
        move    low, CONTEXT_DATA
        cmp     under, 0
        jump.z  heard
        move    chunk, 0
        call    last_of
        move    oldest, CONTEXT_DATA
        bit     oldest, IS_READ
        jump.z  heard
        call    received
        xor     word, oldest
        bit     word, 30
        jump.z  acknowledged
heard:  move    word, SEEN
        call    look
        cmp     status, CONTEXT_DATA
        jump.z  no_news
        move    word, low
        ror     word, 16
        xor     word, status
        and     word, 0xFF00            ; the RQ's engine is between the two words: a turn comes when it is not
        jump.nz no_news
        move    word, FIRST
        call    look
        move    length, CONTEXT_DATA
        sub     low, length             ; how far behind it, in 24 bits
        and     low, 0x00FFFFFF
        move    word, LAST
        call    look
        move    va, CONTEXT_DATA
        sub     va, length
        and     va, 0x00FFFFFF
        cmp     va, low
        jump.nc foreign                 ; of nothing that has gone
        cmp     under, 0
        jump.z  newest
        move    chunk, oldest
        sub     chunk, length
        and     chunk, 0x00FFFFFF
        move    word, status            ; does the oldest message end before it?
        and     word, REPLIES
        jump.nz before
        add     low, 1                  ; or with it: it is acknowledged
before: cmp     chunk, low
        jump.c  newest
        bit     oldest, IS_READ
        jump.z  acknowledged
        move    word, SEEN              ; data of a READ that is before it have got lost: again, the first time at
        call    look                    ; once, then in time
        move    CONTEXT_DATA, status
        move    word, TRIES
        call    look
        cmp     CONTEXT_DATA, 0
        jump.z  repeat
        jump    no_news
newest: move    word, SEEN
        call    look
        move    CONTEXT_DATA, status
        move    word, status
        and     word, REPLIES
        jump.z  no_news
        cmp     word, 0x20
        jump.z  rest                    ; no receive was posted: again later
        cmp     word, 0x40
        jump.z  no_news                 ; not of the oldest one
        and     status, 0x1F
        jump.z  repeat                  ; a packet was lost: again, so often
        cmp     status, 0x1F            ; here, not at the peer's
        jump.z  local
        add     status, REFUSED
        jump    finish
local:  move    status, NOT_READ
        jump    finish
foreign:
        move    word, SEEN
        call    look
        move    CONTEXT_DATA, status
        jump    no_news

; The oldest message has failed, and with it the queue pair.
finish: move    word, UNDER_WAY
        call    look
        move    CONTEXT_DATA, 0
        move    word, PHASE
        call    look
        move    CONTEXT_DATA, BROKEN
        move    chunk, RX_PROGRESS      ; the RQ's engine may be in a READ's data, which go nowhere afterwards
        bit     chunk, 0
        jump.z  named
quits:  cmp     chunk, RX_PROGRESS
        jump.z  quits
        jump    named

; The oldest message has succeeded; what the peer has answered is looked at again in the next turn, which comes
; because there is more to do, or is of no interest.  The next one has its whole time.
acknowledged:
        move    length, oldest
        add     length, 1
        and     length, 0x00FFFFFF
        move    word, FIRST
        call    look
        move    CONTEXT_DATA, length
        sub     under, 1
        move    word, UNDER_WAY
        call    look
        move    CONTEXT_DATA, under
        move    word, TRIES
        call    look
        move    CONTEXT_DATA, 0
        call    in_time
        move    status, SUCCESS
        jump    named

; no receive was posted: how long the peer asks to wait, in units of 4.096 µs that are not shorter
rest:   and     status, 0x1F
        jump.nz timed
        move    status, 32
timed:  move    low, 5
        move    length, status
        bit     status, 0
        jump.z  even
        move    low, 8
        sub     length, 1
        jump.nz even
        move    length, 2               ; 10 µs as 30
even:   ror     length, 1
        sub     length, 1
        shl     low, length
        call    wait_for
        move    word, PHASE
        call    look
        move    CONTEXT_DATA, RESTING
        move    word, UNDER_WAY
        call    look
        move    CONTEXT_DATA, 0
        jump    asleep

; nothing new: has the time of the oldest message's answer gone?
no_news:
        cmp     phase, RESTING
        jump.z  running
        cmp     under, 0
        jump.z  packet                  ; in the middle of the first one
        move    word, TIMEOUT
        call    look
        cmp     CONTEXT_DATA, 0
        jump.z  going
running:
        move    word, DEADLINE
        call    look
        move    length, WAKE
        ror     length, 8
        sub     length, CONTEXT_DATA
        bit     length, 23              ; in 24 bits
        jump.nz going
        cmp     phase, RESTING
        jump.z  rewind
repeat: move    word, TRIES
        call    look
        move    status, CONTEXT_DATA
        add     status, 1
        move    CONTEXT_DATA, status
        cmp     status, MOST_TRIES
        move    status, GAVE_UP
        jump.c  finish
rewind: move    word, FIRST
        call    look
        move    low, CONTEXT_DATA
        move    word, PSN
        call    look
        move    CONTEXT_DATA, low
        move    word, UNDER_WAY
        call    look
        move    CONTEXT_DATA, 0
        move    under, 0
        move    phase, SENDING
        jump    start
going:  cmp     phase, RESTING
        jump.z  asleep
        cmp     phase, IDLE
        jump.z  start

; One packet.  Is there room for a long one?
packet: move    word, MTU
        call    look
        move    length, CONTEXT_DATA
        ror     length, 2
        add     length, 16
        move    word, TX_STATUS
        ror     word, 16
        and     word, 0xFFFF
        cmp     word, length
        jump.nc later
        call    fetch_next
        jump.nz broken
        call    take
        move    opcode, word
        and     opcode, 0xFF

; how much of the message: ``want`` bytes
        move    word, LENGTH
        call    look
        move    want, CONTEXT_DATA
        move    flags, 1
        move    word, SENT
        call    look
        move    skip, CONTEXT_DATA
        sub     want, skip
        cmp     skip, 0
        jump.nz inside
        add     flags, 2
inside: move    word, MTU
        call    look
        cmp     CONTEXT_DATA, want
        jump.c  header
        cmp     opcode, READ            ; a request asks for all
        jump.z  header
        move    want, CONTEXT_DATA
        sub     flags, 1

; with immediate data?  Only the last packet has them
header: move    chunk, 0
        cmp     opcode, SEND_IMMEDIATE
        jump.nz no_send
        move    opcode, SEND
        jump    both
no_send:
        cmp     opcode, WRITE_IMMEDIATE
        jump.nz linked
        move    opcode, WRITE
both:   bit     flags, 0
        jump.z  linked
        move    chunk, 1

; link header, base transport header
linked: move    length, want            ; words: payload, six of headers and ICRC, four of RDMA's
        add     length, 3
        and     length, 0xFFFFFFFC
        ror     length, 2
        add     length, 6
        add     length, chunk
        cmp     opcode, READ
        move.z  length, 6
        cmp     opcode, SEND
        jump.z  counted
        bit     flags, 1
        jump.z  counted
        add     length, 4
counted:
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
        move    length, 12              ; RDMA READ request
        cmp     opcode, READ
        jump.z  coded
        move    length, 0
        cmp     opcode, WRITE
        move.z  length, 6
        cmp     flags, 3                ; only
        jump.nz part
        add     length, 4
part:   cmp     flags, 1                ; last
        jump.nz whole
        add     length, 2
whole:  cmp     flags, 0                ; middle
        jump.nz coded
        add     length, 1
coded:  add     length, chunk
        shl     length, 8
        or      length, 0x40            ; migrated
        cmp     opcode, READ
        jump.z  padded
        move    word, 0
        sub     word, want              ; bytes of pad
        and     word, 3
        shl     word, 4
        or      length, word
padded: shl     length, 16
        move    word, PKEY
        call    look
        or      length, CONTEXT_DATA
        move    TX_WORD, length
        move    TX_PUSH, 0
        move    word, PEER
        call    look
        move    TX_WORD, CONTEXT_DATA
        move    TX_PUSH, 0
        move    word, PSN
        call    look
        move    length, CONTEXT_DATA
        bit     flags, 0                ; the last one asks for an answer
        jump.z  quiet
        or      length, 0x80000000
quiet:  move    TX_WORD, length
        move    TX_PUSH, 0

; RDMA: where
        call    take
        call    take
        move    low, word
        cmp     opcode, SEND
        jump.z  nowhere
        bit     flags, 1
        jump.z  nowhere
        call    take
        move    key, word
        call    take
        move    va, word
        call    take
        move    TX_WORD, word
        move    TX_PUSH, 0
        move    TX_WORD, va
        move    TX_PUSH, 0
        move    TX_WORD, key
        move    TX_PUSH, 0
        move    word, LENGTH
        call    look
        move    TX_WORD, CONTEXT_DATA
        move    TX_PUSH, 0
        cmp     opcode, READ
        jump.z  asked
nowhere:
        cmp     chunk, 0
        jump.z  payload
        move    TX_WORD, low
        move    TX_PUSH, 0

; the payload, from up to four segments
payload:
        call    segments
        jump.nz thrown
segment:
        cmp     want, 0
        jump.z  gathered
        bit     HOST_DESCRIPTOR, 31     ; fewer bytes than when the message began
        jump.z  thrown
        call    take
        move    va, word
        call    take
        move    va_high, word
        call    take
        move    key, word
        call    take
        move    length, word
        cmp     skip, length
        jump.nc here
        sub     skip, length
        jump    segment
here:   add     va, skip
        add.c   va_high, 1
        sub     length, skip
        move    skip, 0
        cmp     want, length
        move.nc length, want
        sub     want, length
piece:  move    word, va                ; to the end of the page
        and     word, 0xFFF
        move    chunk, PAGE
        sub     chunk, word
        cmp     length, chunk
        move.nc chunk, length
        move    TPT_VA, va
        move    TPT_VA_HIGH, va_high
        move    TPT_LENGTH, chunk
        move    TPT_INDEX, key
        move    word, DOMAIN
        call    look
        move    TPT_PD, CONTEXT_DATA
        move    TPT_ACCESS, BY_KEY
found_page:
        bit     TPT_RESULT, 31
        jump.z  found_page
        move    word, TPT_RESULT
        and     word, 0xFF
        jump.nz thrown
        move    HOST_ADDRESS, TPT_ADDRESS
        move    HOST_ADDRESS_HIGH, TPT_ADDRESS_HIGH
        move    word, chunk
        shl     word, 8
        or      word, PAYLOAD
        call    order
        jump.nz thrown
        add     va, chunk
        add.c   va_high, 1
        sub     length, chunk
        jump.nz piece
        jump    segment

; the packet is there: what has gone with it?
gathered:
        move    word, PSN
        call    look
        move    low, CONTEXT_DATA
        move    length, low
        add     length, 1
        and     length, 0x00FFFFFF
        move    CONTEXT_DATA, length
        move    word, LAST
        call    look
        move    CONTEXT_DATA, low
        move    word, MTU
        call    look
        move    want, CONTEXT_DATA
        move    word, SENT
        call    look
        add     want, CONTEXT_DATA
        move    CONTEXT_DATA, want
        bit     flags, 0
        jump.z  more
booked: move    word, UNDER_WAY
        call    look
        move    chunk, CONTEXT_DATA
        move    under, chunk
        call    last_of
        move    CONTEXT_DATA, low
        add     under, 1
        move    word, UNDER_WAY
        call    look
        move    CONTEXT_DATA, under
        move    word, PHASE
        call    look
        move    CONTEXT_DATA, IDLE
        call    finished
        cmp     under, 1                ; the oldest one's time begins
        jump.nz next
        call    in_time
next:   cmp     under, WINDOW
        jump.z  dormant
        move    DOORBELL_QP, qp
        cmp     under, DOORBELL_COUNT
        jump.c  dormant
        jump    later
more:   call    finished
        jump    later

finished:
        move    word, FINISH
        jump    order

; a READ's answers take as many PSNs as packets
asked:  move    word, PSN
        call    look
        move    low, CONTEXT_DATA
        move    word, MTU
        call    look
        add     low, 1
        cmp     CONTEXT_DATA, want
        jump.c  numbered
        sub     want, 1                 ; a path MTU is a power of two
        move    skip, CONTEXT_DATA
halve:  ror     want, 1
        and     want, 0x7FFFFFFF
        ror     skip, 1
        cmp     skip, 1
        jump.nz halve
        add     low, want
numbered:
        move    word, PSN
        call    look
        and     low, 0x00FFFFFF
        move    CONTEXT_DATA, low
        sub     low, 1
        and     low, 0x00FFFFFF
        move    word, LAST
        call    look
        move    CONTEXT_DATA, low
        move    word, UNDER_WAY
        call    look
        move    chunk, CONTEXT_DATA
        call    last_of
        move    word, LENGTH
        call    look
        move    length, CONTEXT_DATA
        move    word, LENGTHS
        add     word, chunk
        call    look
        move    CONTEXT_DATA, length
        call    received                ; not yet
        and     word, 0x40000000
        xor     word, 0xC0000000
        or      low, word
        jump    booked

; its turn comes again when the messages before it are over
thrown: move    TX_PUSH, 2
broken: move    phase, SENDING
        move    status, NOT_READ
        move    word, UNDER_WAY
        call    look
        cmp     CONTEXT_DATA, 0
        jump.z  finish
        jump    waits

; one search at a time: this queue pair's descriptor is seen again
bind:   cmp     searching, 0
        jump.nz later

; the window must be there and this domain's
        call    take
        move    destroys, word
        call    take
        move    key, word
        call    take
        move    low, word
        call    take
        move    high, word
        move    word, DOMAIN
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
search:
        .if ALONE
        move    RQ_KEY_BUSY, 1
        .include rows
        move    RQ_KEY_BUSY, 0
        .else
        move    RMB_PD, pd
        move    RMB_KEY, key
        move    RMB_START, 1
        .end
        move    searching, 1
        move    bound_qp, qp
        move    bound_work, work
        move    SCHEDULER_TAKE, 0       ; this queue pair waits, the others go on
        jump    idle

; Is the bind that waits at its end?  The packet whose key the RQ's engine has looked up before must be, too.
watch:  cmp     searching, 0
        return.z
        cmp     searching, 1
        jump.nz drained
        .if ALONE
        .else
        bit     RMB_DONE, 0
        return.z
        .end
        move    searching, 2
        move    word, RX_PROGRESS
        shl     word, 8
        or      outcome, word
        bit     RX_PROGRESS, 0
        jump.z  found
        return
drained:
        move    word, RX_PROGRESS
        shl     word, 8
        xor     word, outcome
        and     word, 0xFFFFFF00
        return.z
found:  move    searching, 0
        move    qp, bound_qp
        move    work, bound_work
        move    status, outcome
        and     status, 0xFF
        move    context, qp
        shl     context, 6

; completes a work request
tell:   bit     CQ_PUSH, 0
        jump.nz tell
        move    CQ_QP, qp
        move    CQ_WORK, work
        move    CQ_STATUS, status
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
        return

; the oldest message's answer may take so long from now on
in_time:
        move    word, TIMEOUT
        call    look
        move    length, CONTEXT_DATA
        cmp     length, 0
        return.z
        move    low, 1
        shl     low, length

; the deadline is ``low`` units from now
wait_for:
        move    length, WAKE
        ror     length, 8
        add     low, length
        add     low, 1                  ; the unit that has begun
        and     low, 0x00FFFFFF
        move    word, DEADLINE
        call    look
        move    CONTEXT_DATA, low
        return

; word ``word`` of the queue pair's context
look:   move    CONTEXT_ADDRESS, context
        add     CONTEXT_ADDRESS, word
        return

; how many READs are under way: ``low``, and Z: none
reads:  move    low, 0
        move    length, under
        move    word, HEAD
        call    look
        move    va, CONTEXT_DATA
counts: cmp     length, 0
        jump.z  added
        move    word, va
        and     word, 3
        add     word, LASTS
        call    look
        add     va, 1
        sub     length, 1
        bit     CONTEXT_DATA, IS_READ
        jump.z  counts
        add     low, 1
        jump    counts
added:  cmp     low, 0
        return

; bit 30 of ``word``: RECEIVED's of the READ whose number ``last_of`` has left in ``chunk``
received:
        move    word, RECEIVED
        call    look
        move    word, CONTEXT_DATA
        ror     word, chunk
        ror     word, 2
        return

; the word for the last PSN of the message that is ``chunk`` behind the oldest; ``chunk`` is its number afterwards
last_of:
        move    word, HEAD
        call    look
        add     chunk, CONTEXT_DATA
        and     chunk, 3
        move    word, LASTS
        add     word, chunk
        jump    look

; the descriptor that is sent next, or the one at the head: base in context words 0 and 6 (bits 43..32), number of
; places less one in MASK; Z: it is there
fetch_next:
        move    word, UNDER_WAY
        call    look
        move    va, CONTEXT_DATA
        jump    placed
fetch:  move    va, 0
placed: move    word, HEAD
        call    look
        add     va, CONTEXT_DATA
        move    word, MASK
        call    look
        and     va, CONTEXT_DATA
        shl     va, 7
        move    word, BASE_HIGH
        call    look
        move    HOST_ADDRESS_HIGH, CONTEXT_DATA
        move    CONTEXT_ADDRESS, context
        add     va, CONTEXT_DATA
        add.c   HOST_ADDRESS_HIGH, 1
        move    HOST_ADDRESS, va
        move    word, FETCH
        jump    order

; its segments, behind it
segments:
        add     HOST_ADDRESS, 64
        add.c   HOST_ADDRESS_HIGH, 1
        move    word, FETCH_SEGMENTS
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
