"""Statements of the standard as data, and the checks that hold them, on adapters made by hand.

``statements.csv`` is the table, `registry` what checks are marked with, `rig` what they stand on, `report`
runs them and gives each statement its verdict.  Every other module here holds checks.
"""
