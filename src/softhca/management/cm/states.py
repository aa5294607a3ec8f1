"""The states of a connection at the communication manager (IBTA vol. 1, 12.9), as one literal table.

The *active* side sends REQ and waits (`REQ_SENT`) for REP; its program looks at the reply (`REP_RCVD`),
brings its queue pair to RTS and says that it is ready, whereupon RTU goes out (`ESTABLISHED`).  The
*passive* side has got REQ (`REQ_RCVD`), its program accepts, REP goes out (`REP_SENT`), and RTU establishes
the connection; so does the first packet on the queue pair, where RTU is lost.  Until then either side may
reject.

An established connection ends by DREQ and DREP.  Both sides then remember it for a while (`TIMEWAIT`), so
that late packets of it have died before its numbers come again.

A message that is lost is sent again by who waits for its answer; who gets it twice answers again: a second
REQ or REP gets MRA while the program thinks, and REP or RTU afterwards.

`TABLE` says for each state and input the next state and what is done.  A message for which there is no row
is dropped and counted; a command for which there is none is refused.
"""

from __future__ import annotations

# states
REQ_SENT = "REQ_SENT"
REQ_RCVD = "REQ_RCVD"
REP_RCVD = "REP_RCVD"
REP_SENT = "REP_SENT"
ESTABLISHED = "ESTABLISHED"
DREQ_SENT = "DREQ_SENT"
DREQ_RCVD = "DREQ_RCVD"
TIMEWAIT = "TIMEWAIT"
CLOSED = "CLOSED"
STATES = (REQ_SENT, REQ_RCVD, REP_RCVD, REP_SENT, ESTABLISHED, DREQ_SENT, DREQ_RCVD, TIMEWAIT, CLOSED)

# inputs: messages of the peer
REQ = "REQ"
MRA = "MRA"
REJ = "REJ"
REP = "REP"
RTU = "RTU"
DREQ = "DREQ"
DREP = "DREP"
MESSAGES = (REQ, MRA, REJ, REP, RTU, DREQ, DREP)

# inputs: commands of the program
REPLY = "reply"
READY = "ready"
ESTABLISH = "establish"
REJECT = "reject"
DISCONNECT = "disconnect"
DESTROY = "destroy"
COMMANDS = (REPLY, READY, ESTABLISH, REJECT, DISCONNECT, DESTROY)

# inputs: time
RETRY = "retry"
"""No answer has come, and there are retries left."""
GIVE_UP = "give up"
"""No answer has come, and there are none left."""
OVER = "over"
"""The time-wait is over."""
TIMERS = (RETRY, GIVE_UP, OVER)
INPUTS = (*MESSAGES, *COMMANDS, *TIMERS)

# what is done, in this order
SEND = "send"
"""Send the command's message: REP, RTU, REJ, DREQ or DREP."""
RESEND = "resend"
"""Send the last message again."""
ACKNOWLEDGE = "acknowledge"
"""Send MRA."""
SEND_DREP = "send DREP"
REJECT_TIMEOUT = "reject for time-out"
REJECT_STALE = "reject as stale"
START = "start"
"""The peer's answer is waited for, from now on."""
STOP = "stop"
EXTEND = "extend"
"""The peer's answer is waited for as long as its MRA says."""
REPORT = "report"
"""The program gets the event that belongs to the input."""

Row = tuple[str, tuple[str, ...]]

TABLE: dict[tuple[str, str], Row] = {
    # (state, input): (next state, what is done)
    (REQ_SENT, MRA): (REQ_SENT, (EXTEND,)),
    (REQ_SENT, REJ): (CLOSED, (STOP, REPORT)),
    (REQ_SENT, REP): (REP_RCVD, (STOP, REPORT)),
    (REQ_SENT, REJECT): (CLOSED, (STOP, SEND)),
    (REQ_SENT, DESTROY): (CLOSED, (STOP, REJECT_TIMEOUT)),
    (REQ_SENT, RETRY): (REQ_SENT, (RESEND, START)),
    (REQ_SENT, GIVE_UP): (CLOSED, (REJECT_TIMEOUT, REPORT)),
    (REQ_RCVD, REQ): (REQ_RCVD, (ACKNOWLEDGE,)),
    (REQ_RCVD, REJ): (CLOSED, (REPORT,)),
    (REQ_RCVD, REPLY): (REP_SENT, (SEND, START)),
    (REQ_RCVD, REJECT): (CLOSED, (SEND,)),
    (REQ_RCVD, DESTROY): (CLOSED, (SEND,)),
    (REP_RCVD, REJ): (TIMEWAIT, (START, REPORT)),
    (REP_RCVD, REP): (REP_RCVD, (ACKNOWLEDGE,)),
    (REP_RCVD, DREQ): (DREQ_RCVD, (REPORT,)),
    (REP_RCVD, READY): (ESTABLISHED, (SEND,)),
    (REP_RCVD, REJECT): (CLOSED, (SEND,)),
    (REP_RCVD, DESTROY): (CLOSED, (SEND,)),
    (REP_SENT, REQ): (REP_SENT, (RESEND,)),
    (REP_SENT, MRA): (REP_SENT, (EXTEND,)),
    (REP_SENT, REJ): (CLOSED, (STOP, REPORT)),
    (REP_SENT, RTU): (ESTABLISHED, (STOP, REPORT)),
    (REP_SENT, DREQ): (DREQ_RCVD, (STOP, REPORT)),
    (REP_SENT, ESTABLISH): (ESTABLISHED, (STOP, REPORT)),
    (REP_SENT, REJECT): (CLOSED, (STOP, SEND)),
    (REP_SENT, DISCONNECT): (DREQ_SENT, (SEND, START)),
    (REP_SENT, DESTROY): (CLOSED, (STOP, SEND)),
    (REP_SENT, RETRY): (REP_SENT, (RESEND, START)),
    (REP_SENT, GIVE_UP): (CLOSED, (REJECT_TIMEOUT, REPORT)),
    (ESTABLISHED, REJ): (TIMEWAIT, (START, REPORT)),
    (ESTABLISHED, REP): (ESTABLISHED, (RESEND,)),
    (ESTABLISHED, DREQ): (DREQ_RCVD, (REPORT,)),
    (ESTABLISHED, DISCONNECT): (DREQ_SENT, (SEND, START)),
    (ESTABLISHED, DESTROY): (DREQ_SENT, (SEND, START)),
    (DREQ_SENT, REJ): (TIMEWAIT, (START, REPORT)),
    (DREQ_SENT, DREQ): (TIMEWAIT, (SEND_DREP, START, REPORT)),
    (DREQ_SENT, DREP): (TIMEWAIT, (START, REPORT)),
    (DREQ_SENT, DESTROY): (DREQ_SENT, ()),
    (DREQ_SENT, RETRY): (DREQ_SENT, (RESEND, START)),
    (DREQ_SENT, GIVE_UP): (TIMEWAIT, (START, REPORT)),
    (DREQ_RCVD, REJ): (TIMEWAIT, (START,)),
    (DREQ_RCVD, DISCONNECT): (TIMEWAIT, (SEND_DREP, START)),
    (DREQ_RCVD, DESTROY): (TIMEWAIT, (SEND_DREP, START)),
    (TIMEWAIT, REQ): (TIMEWAIT, (REJECT_STALE,)),
    (TIMEWAIT, DREQ): (TIMEWAIT, (SEND_DREP,)),
    (TIMEWAIT, DESTROY): (TIMEWAIT, ()),
    (TIMEWAIT, OVER): (CLOSED, (REPORT,)),
    (CLOSED, DESTROY): (CLOSED, ()),
}

WAITING = frozenset({REQ_SENT, REP_SENT, DREQ_SENT, TIMEWAIT})
"""States in which time matters."""
