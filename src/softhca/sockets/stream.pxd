# Compiled as it is: a stream is an object of Python, of which programs and tests may replace methods.
from softhca.sockets.poll_budget cimport PollBudget
