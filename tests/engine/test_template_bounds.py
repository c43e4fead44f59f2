"""Chat templates that loop, grow, recurse or fail: one sentence each, soon, and the next template renders."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from clew.core.errors import BadInput
from clew.models import template_bounds
from clew.models.rendering import ChatTemplateRenderer
from tests.engine.test_rendering import PLAIN, tokenizer

HOSTILE = {
    "loops": "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "loops over more than there may be": "{% for i in range(1000000000) %}{% endfor %}",
    "divides by nothing": "{{ 1/0 }}",
    "grows": "{{ 'a' * 10**11 }}",
    "recurses": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "adds a text to a number": "{{ 'a' + 1 }}",
    "looks into nothing": "{{ messages[0].content.x.y }}",
    "writes too much": "{% for i in range(9000) %}{{ 'abcdefgh' * 1000 }}{% endfor %}",
    "is no template": "{% for %}",
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_each_is_refused_with_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_bounds, "SECONDS", 0.5)
    began = time.thread_time()
    with pytest.raises(BadInput, match=r"the chat template (did not end|fails|wrote|refuses)") as caught:
        ChatTemplateRenderer(tokenizer(HOSTILE[name]))
    assert time.thread_time() - began < 5
    assert "\n" not in caught.value.message
    assert ChatTemplateRenderer(tokenizer(PLAIN)).stop, "the thread is as it was"


def test_a_template_that_turns_hostile_later_is_bounded_in_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_bounds, "SECONDS", 0.4)
    ends, ok = list[str](), list[str]()

    def loops() -> str:
        while True:
            pass

    def works(text: str) -> None:
        for _ in range(200):
            ok.append(template_bounds.rendered(lambda: text))

    def fails() -> None:
        try:
            template_bounds.rendered(loops)
        except BadInput as error:
            ends.append(error.message)

    threads = [threading.Thread(target=fails) for _ in range(2)] + [threading.Thread(target=works, args=("x",))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert ends == ["the chat template did not end within 0.4 s"] * 2
    assert ok == ["x"] * 200
