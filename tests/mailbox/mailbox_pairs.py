"""Two mailboxes on the two devices of a test; both are driven by hand."""

from mailbox_rings import KEYS

from softhca.mailbox import Mailbox, Terms

BOUND = 200_000


class Late(AssertionError):
    """Something did not happen within `BOUND` rounds."""


def join(pair, terms=None, **options):
    """A mailbox on each context, joined."""
    terms = terms or Terms()
    boxes = [
        Mailbox(context, terms, KEYS[terms.algorithm], **options) for context in (pair.client, pair.server)
    ]
    boxes[0].join(boxes[1].offer)
    boxes[1].join(boxes[0].offer)
    return boxes


def receive(box, *others):
    """The next message of ``box`` while the contexts of ``others`` are driven, too."""
    return until(box.try_receive, *others)


def until(attempt, *others):
    """What ``attempt`` gives at last, driving ``others`` meanwhile."""
    for _ in range(BOUND):
        found = attempt()
        if found is not None and found is not False:
            return found
        for other in others:
            other.context.progress()
    raise Late


def drive(*boxes, rounds=300):
    """So many rounds of both ends, without receiving."""
    for _ in range(rounds):
        for box in boxes:
            box.poll()
