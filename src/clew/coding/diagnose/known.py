"""The confidence that holds where a repository has not been calibrated: fitted on dev commits of other projects.

The diagnosis falls back to it. ``clew reproduce E169 --tier L`` made the figures; they must never be edited by hand:
its report prints the same figures, and a test compares them.
"""

from clew.coding.diagnose.confidence import Calibration

ELSEWHERE = Calibration(
    weights=(2.610, 1.398, -0.167, 0.237, 0.653),
    bias=-0.671,
    cut=0.772,
    n=201,
    source="201 past fixes of pylint, pytest, sphinx",
)
