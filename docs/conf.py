"""The documents as a site: ``make docs``."""

from __future__ import annotations

from docutils import nodes
from docutils.parsers.rst import Directive
from pygments.lexers.c_cpp import CLexer  # noqa: F401  (named by code blocks)
from pygments.lexers.python import PythonLexer
from pygments.lexers.shell import BashSessionLexer

from softhca.cli.commands import COMMANDS
from softhca.cli.main import build_parser

project = "softhca"
author = "the softhca authors"
copyright = "the softhca authors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "softhca"
html_static_path: list[str] = []
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
default_role = "code"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
suppress_warnings = ["misc.highlighting_failure"]


class HelpOf(Directive):
    """What ``softhca COMMAND --help`` prints, of every command."""

    def run(self) -> list[nodes.Node]:
        parser = build_parser(*COMMANDS)
        (action,) = [action for action in parser._actions if action.dest == "command"]
        made: list[nodes.Node] = []
        for name, command in action.choices.items():
            section = nodes.section(ids=[f"softhca-{name}"], names=[f"softhca {name}"])
            section += nodes.title(text=f"softhca {name}")
            section += nodes.paragraph(text=COMMANDS[name][:1].upper() + COMMANDS[name][1:] + ".")
            section += nodes.literal_block(text=command.format_help(), language="text")
            made.append(section)
        return made


def setup(app) -> None:
    """Names of code blocks that say why they are not run, and the help of the commands."""
    for reason in ("long", "root", "hosts", "containers", "network", "terminals"):
        app.add_lexer(f"console-{reason}", BashSessionLexer)
    app.add_lexer("python-fragment", PythonLexer)
    app.add_directive("softhca-help", HelpOf)
