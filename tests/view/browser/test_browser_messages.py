"""Messages as their Markdown means them, and long logs folded: what is shown, and what must never come of it."""

from __future__ import annotations

import pytest

from clew.core.keys import node_key
from clew.store.contract import Script
from clew.store.contract.script import make_node
from clew.store.sqlite import SQLiteStore
from tests.view.browser.browsing import Watched, served, until

pytestmark = pytest.mark.whole

ANSWER = """# The plan

Two *steps*, **both** of `code`, and snake_case_names stay; 2 * 3 * 4 and 7*7 + 8*8 too.
The line break stays.

1. read `a.py`
2. fix it
   - first the **test**
   - then the code

```python
def f(*args, **kwargs):
    return "<b>*not bold*</b>"
```

See [the page](https://example.invalid/a_(b)) or [here](javascript:alert(1)) and ![a graph](https://example.invalid/pixel.png).
<img src=x onerror="window.hit=1"> <script>window.hit=2</script> \u202egnirts \u200b
"""
DEPTH = """el => Math.max(0, ...Array.from(el.querySelectorAll('*'), one => {
  let depth = 0;
  for (; one !== el; one = one.parentElement) depth += 1;
  return depth;
}))"""
PLAIN = "A reply of one paragraph,\n  with its indent and 2 * 3 * 4."
LOG = "\n".join(f"line {number}: ok" for number in range(900))


def say(script, said, reply, ids=None):
    """An ask without tokens, as endpoints give it; or with one for each word."""
    user = make_node(script.tip, "user", said)
    answer = make_node(user, "assistant", reply)
    if ids:
        key = node_key(user.key, answer.message, ids, "words:3")
        answer = answer._replace(key=key, ids=ids, tokenizer="words:3")
    script.store.put_nodes([user, answer])
    script.tip = answer
    script.put("ask", conversation=0, node_in=user.key, node_out=answer.key, finish="stop")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("said") / "said.db"
    store = SQLiteStore(path)
    script = Script(store, "said", created=1.0)
    script.open("- a list?\n* no: what a world says stays as it is")
    say(script, "Do **this**:\n\n- one\n- two", ANSWER)
    script.act("run tests", LOG)
    say(script, "and now?", PLAIN)
    say(script, "this?", "```\n" + LOG)
    say(script, "with tokens", "# no *heading*", (1, 2, 3))
    script.end()
    for name, reply in HOSTILE.items():
        one = Script(store, name, created=2.0)
        say(one, "go", reply)
        one.end()
    store.close()
    with served(path) as address:
        yield address


HOSTILE = {
    "brackets": "[" * 19_000,
    "links": "[a](" * 4_000,
    "images": "![](" * 4_000,
    "stars": "*a **b _c " * 1_900,
    "ticks": "".join("`" * (n % 90 + 1) + "a" for n in range(400)),
    "lists": "\n".join(" " * (n % 13) + "- x" for n in range(4_000)),
    "deep": "\n".join("  " * n + "- x" for n in range(60)),
    "rules": "- " * 9_000 + "x\n" + "_ " * 9_000,
    "fences": "```\n~~~\n" * 2_400,
    "cut": "# Title\n\n" + "*word* " * 5_000 + "THE END",
    "mixed": "**[`" * 4_000 + "`](x)**",
}


def body(look, seq, role="model"):
    return look.page.locator(f".call[data-seq='{seq}'] .part.as-{role} .body")


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", (1280, 1000)), ("dark", (390, 844))], ids=["light-desk", "dark-phone"]
)
def test_markdown_is_shown_and_nothing_of_it_acts(chrome, base, size, scheme):
    look = Watched(chrome, base, *size, color_scheme=scheme).open("#/run/said@1")
    shown = body(look, 1)
    shown.locator(".heading", has_text="The plan").wait_for()
    assert shown.locator("em").all_inner_texts() == ["steps"]
    assert shown.locator("strong").all_inner_texts() == ["both", "test"]
    assert shown.locator("code").all_inner_texts() == ["code", "a.py"]
    assert shown.locator("li").count() == 4
    assert shown.locator("li li .sign").all_inner_texts() == ["•", "•"]
    assert shown.locator(".fence .said").inner_text() == 'def f(*args, **kwargs):\n    return "<b>*not bold*</b>"'
    text = shown.inner_text()
    for piece in (
        "snake_case_names stay; 2 * 3 * 4 and 7*7 + 8*8 too.\nThe line break stays.",
        "the page (https://example.invalid/a_(b))",
        "here (javascript:alert(1))",
        "image a graph https://example.invalid/pixel.png",
        '<img src=x onerror="window.hit=1"> <script>window.hit=2</script>',
        "⟨RLO⟩gnirts ⟨ZWSP⟩",
    ):
        assert piece in text, piece
    assert shown.locator("a, img, script, b").count() == 0
    assert look.page.evaluate("window.hit") is None
    assert body(look, 1, "user").locator("li").count() == 2
    assert body(look, 0, "world").locator(".markdown").count() == 0
    assert look.fits()
    look.shot(f"markdown-{size[0]}-{scheme}")

    look.page.get_by_role("button", name="Markdown", exact=True).click()
    shown.locator(".markdown").wait_for(state="detached")
    assert "**both** of `code`" in shown.inner_text()
    assert "[here](javascript:alert(1))" in shown.inner_text()
    look.page.reload()
    look.page.wait_for_selector(".call")
    assert look.page.get_by_role("button", name="Markdown").get_attribute("aria-pressed") == "false", "it is kept"
    look.press("w")
    shown.locator(".markdown").wait_for()
    look.close()


def test_what_has_no_markdown_and_what_has_tokens_stays_as_it_was_written(chrome, base):
    look = Watched(chrome, base).open("#/run/said@5")
    body(look, 5).wait_for()
    assert "# no *heading*" in body(look, 5).inner_text()
    assert body(look, 3).inner_text() == PLAIN
    assert look.page.locator(".call[data-seq='3'] .markdown, .call[data-seq='5'] .as-model .heading").count() == 0
    look.close()


@pytest.mark.parametrize("seq", [2, 4], ids=["world", "fence"])
def test_a_log_of_many_lines_is_folded(chrome, base, seq):
    look = Watched(chrome, base).open(f"#/run/said@{seq}")
    shown = body(look, seq, "world" if seq == 2 else "model")
    shown.wait_for()
    assert "line 19: ok" in shown.inner_text()
    assert "line 899: ok" in shown.inner_text()
    assert "line 500: ok" not in shown.inner_text()
    look.shot(f"folded-{seq}")
    shown.get_by_role("button", name="Show the 868 lines between").click()
    assert until(lambda: "line 500: ok" in shown.inner_text())
    look.press("k", "j")
    assert "line 500: ok" in shown.inner_text(), "it stays unfolded"
    look.open("#/run/said@0")
    look.page.get_by_role("searchbox", name="Find in this run").fill("line 500: OK")
    look.press("Enter")
    assert until(lambda: look.route.endswith("@2"))
    assert until(lambda: "line 500: ok" in body(look, 2, "world").inner_text()), "what was sought is to be seen"
    look.close()


def test_the_rest_of_a_text_that_was_cut_comes_as_it_was_written(chrome, base):
    look = Watched(chrome, base).open("#/run/cut@0")
    body(look, 0).locator(".heading", has_text="Title").wait_for()
    look.page.get_by_role("button", name="Show 15 k characters more").click()
    assert until(lambda: "THE END" in body(look, 0).inner_text())
    assert body(look, 0).inner_text().startswith("# Title\n\n*word* *word*")
    assert body(look, 0).inner_text().count("*word* ") == 5_000
    look.close()


@pytest.mark.parametrize("run", HOSTILE)
def test_hostile_markdown_is_drawn_at_once_and_keeps_its_characters(chrome, base, run):
    look = Watched(chrome, base)
    look.open(f"#/run/{run}@0")
    body(look, 0).wait_for()
    assert body(look, 0).evaluate(DEPTH) < 60
    text = body(look, 0).inner_text()
    for char in "axb":
        assert text.count(char) >= HOSTILE[run][:20_000].count(char), char
    look.close()
