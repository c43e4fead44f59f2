"""E166's worker that is down: what reaches it, who answers instead, and marks that can fail."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")
pytest.importorskip("cma", reason="did not run: cma is not installed")

from papers.E166_route import endpoints, pool, report_service, tier_service
from papers.experiment import Experiment, load

pytestmark = pytest.mark.whole

E166 = Experiment.find("E166")


def test_the_committed_lines_are_the_cells_of_the_tier():
    lines = load(E166.here / "results" / "service.jsonl")
    assert [E166.key(line) for line in lines] == [E166.key(cell) for cell in tier_service.cells(False)]


def test_requests_go_to_the_next_worker_and_the_one_that_is_down_is_left_alone(monkeypatch):
    monkeypatch.setattr(tier_service, "HELD", 60)
    monkeypatch.setattr(tier_service, "PATIENCE", 0.5)  # seconds: a healthy one answers by then on a busy machine too
    tier_service.trial.cache_clear()
    for fault in ("malformed", "silent"):
        found = tier_service.outcome({"fault": fault, "worker": "expensive"}, 100)
        assert found["unanswered"] == 0
        assert found["by rank"] == found["asked"] == 60
        assert found["success"] == found["told"]
        assert 1 <= found["reached down"] <= report_service.TRIES
    tier_service.trial.cache_clear()


def test_marks_can_fail():
    def lines(better):
        for seed in (0, 1):
            for cell in (
                {"fault": "", "worker": ""},
                *({"fault": f, "worker": pool.WORKERS[0]} for f in endpoints.FAULTS),
            ):
                low = 0.9 if better or not cell["worker"] else 0.5
                told = {"told": 0.9, "oracle": 0.9, "asked": 10, "by rank": 10 if better else 9}
                yield cell | told | {"seed": seed, "success": low, "reached down": 3 if better else 30}

    good, bad = (report_service.marks(report_service.Results(lines(better))) for better in (True, False))
    assert [mark.name for mark in good if mark.met is False] == []
    assert [mark.name for mark in bad if mark.met] == []
