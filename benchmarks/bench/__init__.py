"""The harness behind ``benchmarks/performance.py``: what is run side by side, and what becomes of it.

* A *cell* (`plan`) is one figure of one program; a *round* (`rounds`) measures every cell once, so that what
  is compared was measured within minutes; figures are medians over rounds, ratios medians of the rounds'.
* One module a family of programs runs it and reads its output: `softhca_perf`, `tcp_tools`, `fabrics`, `mpi`,
  `python_sockets`, `python_messages`, `memory`.  A program that is not installed raises `measure.Absent`,
  which is a line in the tables.
* `tables`, `plots` and `targets` say what came out; `document` puts it between markers into a file.
"""
