"""A store of a small quickstart behind `clew view`, a browser, and a page that is watched."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from clew.cli import quickstart, verbs
from clew.store import open_store
from tests.view.browser.browsing import Watched, browser, served


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A folder after a small quickstart and a second small training: models, trainings, store."""
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    pytest.importorskip("playwright.sync_api", reason="did not run: playwright is not installed")
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("CLEW_STORE", raising=False)
        patch.setattr(quickstart, "PRETRAINING", 60)
        patch.setattr(quickstart, "TASKS", 8)
        for line in (["quickstart", "--iterations", "3"],
                     ["train", "--name", "second", "--iterations", "2", "--tasks", "2", "-n", "2", "--model",
                      ".clew/trainings/quickstart/checkpoint", "--max-tokens", "8"]):  # fmt: skip
            done = CliRunner().invoke(verbs, line)
            assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="session")
def site(lab):
    """Address of `clew view` on it."""
    with served(Path(".clew/store.db"), folder=lab) as base:
        yield base


@pytest.fixture(scope="package")
def chrome():
    with browser() as started:
        yield started


@pytest.fixture
def look(chrome, site):
    """A page; it fails the test if it wrote to the console, opened a dialog, or asked anyone but its server."""
    page = Watched(chrome, site)
    yield page
    page.close()


@pytest.fixture
def store(lab):
    opened = open_store(lab / ".clew/store.db")
    yield opened
    opened.close()
