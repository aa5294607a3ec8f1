"""The public API, in the shape of pyverbs: devices, regions, queues and work requests.

A program written for pyverbs runs here by importing these modules under that name (``softhca run`` does it),
and moves to real hardware by importing the real pyverbs.  ``docs/verbs.md`` says what exists and where it
differs.
"""
