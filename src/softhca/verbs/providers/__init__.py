"""Modules of other makers' devices: what a program imports is there, and says that this device is another.

Objects and functions refuse with ``EOPNOTSUPP``; attributes can be made and are read by nobody.
"""
