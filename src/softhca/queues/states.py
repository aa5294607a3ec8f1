"""The states of a queue pair as both sides of the host interface know them (ibv_qp_state's numbers).

What else a queue pair does in each state, and which attributes a transition takes, is the adapter's
(``transport.states``).
"""

from typing import NamedTuple

RESET, INIT, RTR, RTS, SQD, SQE, ERR = range(7)
NAMES: tuple[str, ...] = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")


class Posting(NamedTuple):
    """Which work requests the host may post in one state (IBTA vol. 1, 10.3.1); in SQE and ERR they complete
    flushed."""

    post_send: bool = False
    post_receive: bool = False


POSTING: tuple[Posting, ...] = (
    Posting(),  # RESET
    Posting(post_receive=True),  # INIT
    Posting(post_receive=True),  # RTR
    Posting(post_send=True, post_receive=True),  # RTS
    Posting(post_send=True, post_receive=True),  # SQD
    Posting(post_send=True, post_receive=True),  # SQE
    Posting(post_send=True, post_receive=True),  # ERR
)
