"""E169: finding the place of a bug. Tier L reads the histories of three projects from clones, U issues of users and
the histories of their projects; tier R needs none."""

from argparse import ArgumentParser

NEEDS = "clones of the projects (L, U), bubblewrap (R)"
TIERS = ("L", "R", "U")
SETTINGS = ("project", "split", "kind")


def options(parser: ArgumentParser) -> None:
    from papers.E169_sherloc import clones, issues

    parser.add_argument("--clones", type=clones.lie_in, help="folder of clones of the projects")
    parser.add_argument("--issues", type=issues.lie_in, help="folder of SWE-bench Lite and Multi-SWE-bench")
