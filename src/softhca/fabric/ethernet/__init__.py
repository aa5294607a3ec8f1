"""Ethernet in virtual time: switches with output queues that mark, drop and, where asked to, pause.

The other kind of fabric beside `softhca.fabric.switching`: no credits, so packets get lost where queues are
full.  `network` joins hosts by switches; what a switch does is in `switch`, and what a link does in `port`.
"""
