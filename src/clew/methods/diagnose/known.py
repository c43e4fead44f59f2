"""The confidence that holds where a repository has not been calibrated: fitted on dev commits of other projects.

The diagnosis falls back to it. Tiers L and U of E169 made the figures (``bundled`` of report_u); they must never be
edited by hand: a test compares them.
"""

from clew.methods.diagnose.confidence import Calibration

ELSEWHERE = Calibration(
    weights=(2.879, 1.259, -0.182, -0.128, 0.187),
    bias=-0.528,
    cut=0.711,
    n=311,
    source="201 past fixes of pylint, pytest, sphinx and 110 issues of users",
)
