"""Programs of a world that see other completions than there are."""

from softhca.driver.cq import CqHandle


def change_polls(monkeypatch, change):
    """Let completion queues that are made from now on give ``change(the right completions)``."""
    make = CqHandle.__init__

    def made(self, *arguments):
        make(self, *arguments)
        poll = self.poll
        self.poll = lambda *words: change(poll(*words))

    monkeypatch.setattr(CqHandle, "__init__", made)


def altered(completion, **fields):
    """``completion`` with other values in some fields."""
    for name, value in fields.items():
        setattr(completion, name, value)
    return completion
