"""``softhca rmb prove``: the claims about arbiters and FIFOs, proved by induction for all inputs."""

from __future__ import annotations

import argparse
from typing import Any

from softhca.cli.errors import UsageError
from softhca.cli.output import add_json_option, print_json, print_table


def add_parser(subparsers: Any) -> None:
    """Add ``prove``."""
    parser = subparsers.add_parser(
        "prove", help="what is claimed of arbiters and FIFOs, proved for all inputs"
    )
    parser.add_argument("part", nargs="?", metavar="PART", help="this one's claims alone")
    add_json_option(parser)
    parser.set_defaults(run_part=run)


def run(args: argparse.Namespace) -> int:
    """Prove, and tell; 1 where a claim is not proved, UsageError for a part without claims."""
    from softhca.hardware.claims import Verdict, judge_claims
    from softhca.hardware.proofs import PROOFS

    if args.part is not None and args.part not in PROOFS:
        raise UsageError(f"no proof of {args.part!r}: {', '.join(PROOFS)}")
    names = list(PROOFS) if args.part is None else [args.part]
    made = [PROOFS[name].make() for name in names]
    verdicts = judge_claims(*made)
    if args.json:
        print_json(
            [
                {"part": name, "told": PROOFS[name].told, "claims": list(claims.names), "verdict": verdict}
                for name, claims, verdict in zip(names, made, verdicts, strict=True)
            ]
        )
    else:
        rows = [
            (name, PROOFS[name].told, ", ".join(claims.names), verdict)
            for name, claims, verdict in zip(names, made, verdicts, strict=True)
        ]
        print_table("Proofs by induction", ("part", "what it does", "claims", "verdict"), rows)
    return 0 if all(verdict == Verdict.PROVED for verdict in verdicts) else 1
