; The search for a key by the remote-key manager, as the walk's counterpart: what the SQ's engine does for it
; before the next queue pair has its turn.  r14: protection domain, r15: key.

        .engine SQ
        .name   pd, r14
        .name   key, r15

        move    RMB_PD, pd
        move    RMB_KEY, key
        move    RMB_START, 1
        move    SCHEDULER_TAKE, 0
wait:   bit     RMB_DONE, 0             ; nobody else has work: wait for the end
        jump.z  wait
        halt
