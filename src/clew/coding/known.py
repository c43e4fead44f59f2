"""The confidence that holds where a repository has not been calibrated: fitted on dev commits of other projects."""

from clew.coding.confidence import Calibration

ELSEWHERE = Calibration((1.0, 1.0, 1.0, 1.0, 1.0), -2.0, 0.6, 0, "none")
