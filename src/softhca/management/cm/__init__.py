"""The communication manager (IBTA vol. 1, chapter 12): messages, the states of a connection, its timers, and
who on a port listens.  It knows no queue pair, clock or thread.
"""
