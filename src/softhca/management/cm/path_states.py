"""Loading another alternate path into an established connection (IBTA vol. 1, 12.8), as a literal table.

One side proposes a path (LAP), and waits (`PROPOSED`); the other side's program is asked (`ASKED`), and
its answer goes back (APR), whose status says whether it has loaded the path.  Either side may propose, one
path at a time; where both do at once, each refuses the other's.  A LAP that comes twice is acknowledged (MRA)
while the program thinks, and answered again afterwards.

`TABLE` is as that of `states`: a message for which there is no row is dropped and counted, a command refused.
"""

from __future__ import annotations

from softhca.management.cm.states import ACKNOWLEDGE, EXTEND, REPORT, RESEND, SEND, START, STOP, Row

# states
QUIET = "QUIET"
"""No path is proposed, by either side."""
PROPOSED = "PROPOSED"
ASKED = "ASKED"
STATES = (QUIET, PROPOSED, ASKED)

# inputs: messages of the peer
LAP = "LAP"
AGAIN = "LAP again"
"""The LAP that was taken last."""
APR = "APR"
MRA = "MRA"
MESSAGES = (LAP, AGAIN, APR, MRA)

# inputs: commands of the program
LOAD = "load"
ANSWER = "answer"
COMMANDS = (LOAD, ANSWER)

# inputs: time, and the connection's end
RETRY = "retry"
GIVE_UP = "give up"
END = "end"
"""The connection is not established any more."""
INPUTS = (*MESSAGES, *COMMANDS, RETRY, GIVE_UP, END)

# what is done, besides what `states` has
REFUSE = "refuse"
"""Send APR: rejected."""
ANSWER_AGAIN = "answer again"
"""Send the last APR again."""

TABLE: dict[tuple[str, str], Row] = {
    # (state, input): (next state, what is done)
    (QUIET, LAP): (ASKED, (REPORT,)),
    (QUIET, AGAIN): (QUIET, (ANSWER_AGAIN,)),
    (QUIET, LOAD): (PROPOSED, (SEND, START)),
    (QUIET, END): (QUIET, ()),
    (PROPOSED, LAP): (PROPOSED, (REFUSE,)),
    (PROPOSED, AGAIN): (PROPOSED, (ANSWER_AGAIN,)),
    (PROPOSED, APR): (QUIET, (STOP, REPORT)),
    (PROPOSED, MRA): (PROPOSED, (EXTEND,)),
    (PROPOSED, RETRY): (PROPOSED, (RESEND, START)),
    (PROPOSED, GIVE_UP): (QUIET, (REPORT,)),
    (PROPOSED, END): (QUIET, (STOP,)),
    (ASKED, AGAIN): (ASKED, (ACKNOWLEDGE,)),
    (ASKED, ANSWER): (QUIET, (SEND,)),
    (ASKED, END): (QUIET, ()),
}
