"""The confidence that holds where a repository has not been calibrated: fitted on dev commits of other projects.

The diagnosis falls back to it. ``clew reproduce E169 --tier L`` made the figures; they must never be edited by hand:
its report prints the same figures, and a test compares them.
"""

from clew.coding.diagnose.confidence import Calibration

ELSEWHERE = Calibration(
    weights=(1.561, 1.575, 0.118, 0.856, 0.405),
    bias=-1.523,
    cut=0.730,
    n=201,
    source="201 past fixes of pylint, pytest, sphinx",
)
