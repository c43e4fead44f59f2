"""E169: finding the place of a bug. Tier L reads the histories of three projects from clones, R needs none."""

from argparse import ArgumentParser

NEEDS = "clones of three projects (L), bubblewrap (R)"
TIERS = ("L", "R")
SETTINGS = ("project", "split", "kind")


def options(parser: ArgumentParser) -> None:
    from papers.E169_sherloc.clones import lie_in

    parser.add_argument("--clones", type=lie_in, help="folder of clones of pytest, pylint and sphinx")
