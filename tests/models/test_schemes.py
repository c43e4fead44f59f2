"""Who opens a model by the word before the colon: bundled schemes and one from outside keep one contract."""

from __future__ import annotations

import subprocess
import sys

import pytest

from clew.core import registry
from clew.core.errors import BadInput, UnknownName
from clew.models import load
from clew.models.contract import check_scheme
from clew.models.fakes import Echo

from .pool import folder, servers, worker


class Named(Echo):
    def __init__(self, ref):
        super().__init__()
        self.ref = ref


def shouts(ref, *, api_key, keys, **options):
    """An opener from outside."""
    if options:
        raise BadInput(f"{ref!r} takes no {', '.join(options)}", remedy="Leave it out.")
    return Named(ref)


@pytest.fixture
def shout(monkeypatch):
    monkeypatch.setitem(registry._local, "schemes", {"shout": shouts})


def test_a_scheme_from_outside_opens_models_by_its_word(shout):
    assert "check_answers" in check_scheme(shouts, "shout:loud")
    assert load("shout:loud").ref == "shout:loud"
    with pytest.raises(BadInput, match="takes no flavour"):
        load("shout:loud", flavour=1)
    with pytest.raises(UnknownName, match="no model is called 'whisper:loud'"):
        load("whisper:loud")


@pytest.mark.parametrize(
    ("opens", "says"),
    [
        (lambda ref, *, api_key, keys, **options: Named(ref), "accepted in silence"),
        (lambda ref, *, api_key, keys, **options: Named(ref + "!"), "found again"),
        (lambda ref, *, api_key, keys: Named(""), "ref is empty"),
    ],
)
def test_the_contract_of_schemes_finds_faults(opens, says):
    with pytest.raises(AssertionError, match=says):
        check_scheme(opens, "shout:loud")


def test_weights_keep_the_contract_of_schemes(tmp_path):
    pytest.importorskip("torch", reason="did not run: torch is not installed")
    from clew.models.local import small

    model = small(["where", "is", "the", "cup?", "go", "on.", "Where", "Go"], d=16, layers=1, heads=2, kv_heads=1)
    model.save(tmp_path / "weights")
    model.close()
    opens = registry.lookup("schemes", "weights")
    assert "check_tokens" in check_scheme(opens, str(tmp_path / "weights"))
    assert load(f"weights:{tmp_path / 'weights'}").ref == load(tmp_path / "weights").ref


def test_a_router_keeps_the_contract_of_schemes(tmp_path):
    with servers("a", "b") as peers:
        path = folder(tmp_path, [worker(peer) for peer in peers])
        opens = registry.lookup("schemes", "route")
        assert "check_answers" in check_scheme(opens, f"route:{path}", same=False)


def test_weights_without_what_loads_them_name_the_remedy(monkeypatch):
    monkeypatch.setattr(registry, "names", lambda kind: [] if kind == "schemes" else ["echo"])
    with pytest.raises(UnknownName, match="nothing here loads weights") as caught:
        load("org/model")
    assert "clew[local]" in caught.value.remedy


def test_names_and_endpoints_load_no_guest():
    program = """
import sys
from clew.models import load
load("echo"); load("openai:m@http://127.0.0.1:1/v1")
guests = ("clew.models.local", "clew.models.engine", "clew.models.compose.router", "clew.methods.routing", "torch")
print([name for name in sys.modules if name.startswith(guests)])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
