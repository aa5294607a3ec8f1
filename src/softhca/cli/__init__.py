"""The command ``softhca``: what people run.

``main`` reads the command line; each subcommand has a module of its own.
"""
