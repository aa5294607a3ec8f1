"""A link whose calls are timed."""

from time import perf_counter_ns

from softhca.links.wrapped import WrappedLink


class TimedLink(WrappedLink):
    """As ``link``; ``took`` is called with ``"send"`` or ``"receive"`` and the nanoseconds of each call."""

    def __init__(self, link, took):
        super().__init__(link)
        self.took = took

    def send(self, burst):
        begin = perf_counter_ns()
        result = self._link.send(burst)
        self.took("send", perf_counter_ns() - begin)
        return result

    def receive(self, arrival):
        begin = perf_counter_ns()
        result = self._link.receive(arrival)
        self.took("receive", perf_counter_ns() - begin)
        return result
