"""What mailboxes raise: misuse and lost connections; what a peer writes raises nothing."""


class MailboxError(Exception):
    """A mailbox cannot go on, or was used wrongly."""


class TermsError(MailboxError, ValueError):
    """Terms that no ring can have."""


class OfferError(MailboxError):
    """The peer's offer is not one, or does not fit; the message says in what."""


class MailboxTimeout(MailboxError, TimeoutError):
    """There was no room, or no message, in time."""
