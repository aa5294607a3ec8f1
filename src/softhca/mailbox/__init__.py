"""Messages by RDMA WRITE that prove themselves: each carries its hash, and what verifies is whole.

`Mailbox` is one end of a pair; docs/mailbox.md is the contract.  A name's module is imported when somebody
asks for it: a program without asyncio need not wait for it, nor ``softhca perf --help`` for the verbs.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "aio": ("AsyncMailbox",),
    "box": ("Mailbox",),
    "conditions": ("Condition", "all_of", "always", "any_of", "field", "own", "reached"),
    "errors": ("MailboxError", "MailboxTimeout", "OfferError", "TermsError"),
    "journal": ("Journal",),
    "mailbox_set": ("MailboxSet",),
    "offer_exchange": ("exchange_offers",),
    "requests": ("Outcome",),
    "statistics": ("Statistics",),
    "terms": ("Terms",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The public names, from the modules that have them, and those modules."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """All names, also before anybody asks for them."""
    return sorted({*globals(), *__all__})
