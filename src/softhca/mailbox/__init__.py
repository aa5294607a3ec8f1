"""Messages by RDMA WRITE that prove themselves: each carries its hash, and what verifies is whole.

`Mailbox` is one end of a pair; docs/mailbox.md is the contract.
"""

from softhca.mailbox.aio import AsyncMailbox
from softhca.mailbox.box import Mailbox
from softhca.mailbox.conditions import Condition, all_of, always, any_of, field, own, reached
from softhca.mailbox.errors import MailboxError, MailboxTimeout, OfferError, TermsError
from softhca.mailbox.journal import Journal
from softhca.mailbox.mailbox_set import MailboxSet
from softhca.mailbox.offer_exchange import exchange_offers
from softhca.mailbox.requests import Outcome
from softhca.mailbox.statistics import Statistics
from softhca.mailbox.terms import Terms

__all__ = [
    "AsyncMailbox",
    "Condition",
    "Journal",
    "Mailbox",
    "MailboxError",
    "MailboxSet",
    "MailboxTimeout",
    "OfferError",
    "Outcome",
    "Statistics",
    "Terms",
    "TermsError",
    "all_of",
    "always",
    "any_of",
    "exchange_offers",
    "field",
    "own",
    "reached",
]
