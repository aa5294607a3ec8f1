"""Whether an attachment can still be asked for anything: what every post and poll looks at first."""


class Standing:
    """``dead`` says why nothing can be asked any more; empty while all is well."""

    __slots__ = ("dead",)

    def __init__(self):
        self.dead = ""

    def check(self):
        """Raise what `dead` means."""
        raise NotImplementedError
