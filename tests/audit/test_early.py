"""The early audit on agents whose truth is known: one that must think, one that need not, and a coin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed")
pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")

from clew.core.errors import BadInput
from clew.core.registry import register
from clew.core.values import Task
from clew.harness import Runner
from clew.harness.agents import chatter
from clew.harness.fork.continuations import Continuations
from clew.methods.agreement.running import OwnJudge
from clew.methods.early import stance, states, study, thinking
from clew.methods.early.branches import Sizes
from clew.methods.early.outcome import Shown, Voted
from clew.methods.why.rewind import Behaviour
from clew.models.fakes import Scripted
from clew.models.markov import END, SAY, THINK, Markov, Words
from clew.models.rendering import ChatTemplateRenderer
from clew.models.replies import parse_reply
from clew.models.taps import sources_of
from clew.train.warmstart import tally_sft
from clew.worlds.tally import Tally
from tests.engine.test_rendering import local, tokenizer

PLAYER = "clew.harness.agents:player"
ODD = Shown(Behaviour("answer odd"))
COIN = "\n".join(f"hmm well so {side} answer {side}" for side in ("heads", "tails"))
HEADS = Shown(Behaviour("answer heads"))


def tally(folder, rule: str, temperature: float = 1.0) -> Runner:
    """An agent of the world tally, of rows of eight marks."""
    register("tasksets", "tally", Tally)
    model = tally_sft(folder / rule, rule=rule, length=8, steps=170, batch=32, demonstrations=180)
    return Runner(
        PLAYER, Tally(rule, 8), model, sampling={"max_tokens": 12, "temperature": temperature}, concurrency=512
    )


def asked(runner: Runner, tasks: int = 60, **options) -> study.Arms:
    groups = runner.collect(runner.taskset.sample(tasks), 1)
    assert groups.success().estimate > 0.95
    hands = Continuations(runner, outcome=ODD)
    arms, left = study.prepare(
        groups.runs, hands, ODD, until="answer", sizes=Sizes(shares=(0, 0.5, 1), n=2, swaps=1), **options
    )
    assert sum(left.values()) < 5
    return arms


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tally")


@pytest.mark.whole
def test_who_must_think_and_who_need_not_are_told_apart(folder):
    must = study.answer(asked(tally(folder, "count")))
    assert must.verdict.kind == "predictable but computed in the trace"
    # Such an agent errs now and then; the rounding of the machine decides how often: low was .89, .91 and .94 on three.
    assert must.dependence.low > 0.75
    assert must.saving.at is None
    assert must.gain < 0.35

    runner = tally(folder, "first", 0.3)  # at 1 one slip in 60 prompts, which some draws have, would leave it open
    need_not = study.answer(asked(runner))
    assert need_not.verdict.kind == "decided at the prompt"
    assert need_not.dependence.high < 0.1
    assert need_not.saving.at == 0
    assert need_not.saving.share.estimate == 1
    assert need_not.own.high < 0.1
    by_name = {probe.name: probe.auroc for probe in need_not.probes}
    assert by_name["last prompt token"].low > 0.9
    assert by_name["shuffled labels"].low < 0.6
    ids = study.filed(need_not, ODD.name)
    store = runner.store
    assert store.reports()[ids[0]].claim.startswith("decided at the prompt")
    run = need_not.arms.traces[0].run
    values = next(iter(run.annotations("early", "tokens"))).values
    assert np.isfinite(values).sum() == 3
    probed = next(iter(run.annotations("early-probe", "tokens"))).values
    there = probed[np.isfinite(probed)]
    assert len(there) == need_not.arms.traces[0].tokens
    assert 0 <= there.min() <= there.max() <= 1
    assert len(store.run_ids()) == 60, "no run was stored for a continuation"


@pytest.fixture(scope="module")
def coin():
    """An agent that draws a coin in its thinking and answers by it; its model has no hidden states."""
    runner = Runner(chatter, None, Markov(COIN, order=5, tokens=True), sampling={"max_tokens": 8})
    tasks = [Task(f"t{i}", f"question {'abcdefghijkl'[i % 12]} {i}") for i in range(80)]
    return runner, runner.collect(tasks, 1).runs


def prepared(coin, **options):
    runner, runs = coin
    how = {"sizes": Sizes(n=4, swaps=2, cut_samples=40)} | options
    return study.prepare(runs, Continuations(runner, outcome=HEADS), HEADS, until="answer", **how)[0]


@pytest.mark.whole
def test_a_coin_is_open_until_it_falls_and_probes_are_left_out_with_a_sentence(coin):
    arms = prepared(coin)
    found = study.answer(arms)
    assert found.verdict.kind == "open until then"
    assert found.curve.time.estimate == 1
    assert found.curve.fixed.high < 0.4
    assert found.dependence.low > 0.9
    assert found.saving.at is None
    assert any("no probes of hidden states" in note for note in found.notes)
    assert {probe.name for probe in found.probes} >= {"prompt alone (TF-IDF)", "prompt length", "first word"}


def test_what_was_sampled_is_not_sampled_again_and_any_sample_can_be_followed(coin):
    arms = prepared(coin)
    arms.sample()
    assert arms.cost()["continuations"] == 0
    assert replace(arms, sizes=Sizes(n=5, swaps=2, cut_samples=40)).cost()["continuations"] > 0
    start = arms.swapped()[0]
    kept = arms.hands.kept("swapped", start)
    run = arms.hands.promote(start, int(kept.seeds[0]))
    assert HEADS.of([run], [start.seq]) == [kept.outcomes[0]]
    mine, donor = arms.pairs()[0]
    assert arms.outcomes[mine] != arms.outcomes[donor]
    said = run.reply(start.seq).ids[run.call(start.seq).head :]
    assert said[: arms.traces[donor].tokens] == arms.traces[donor].thought, "the donor's thinking is what was forced"
    assert run.call(start.seq).forced == arms.traces[donor].tokens + len(arms.close)


@pytest.mark.whole
def test_stance_changes_of_a_coin_are_meaningful_and_its_fillers_are_not(coin):
    arms = prepared(coin)
    words = arms.hands.spec.model.renderer
    arms.cuts = stance.changes(arms.traces, words, "so", "heads|tails")
    found = study.answer(arms, probing=False)
    assert {cut.kind for cut in found.cuts} == {"meaningful"}
    with pytest.raises(BadInput, match="goes from"):
        stance.changes(arms.traces, words, "north", "south")


def test_a_saving_alone_may_be_asked_of_an_outcome_that_is_always_the_same(coin):
    runner, runs = coin
    always = Shown(Behaviour("answer"))
    hands = Continuations(runner, outcome=always)
    with pytest.raises(BadInput, match="nothing to tell apart") as refused:
        study.prepare(runs, hands, always, until="answer")
    assert "--saving" in refused.value.remedy
    arms, _ = study.prepare(runs, hands, always, until="answer", one_sided=True, sizes=Sizes(n=2))
    found = study.answer(arms, saving_only=True)
    assert found.verdict is None
    assert found.saving.at == 0


def test_bad_input_is_refused_in_one_sentence(coin):
    runner, runs = coin
    hands = Continuations(runner, outcome=HEADS)
    with pytest.raises(BadInput, match="no thinking is found in any of 80 runs"):
        study.prepare(runs, hands, HEADS)
    with pytest.raises(BadInput, match="no reply holds 'therefore'"):
        study.prepare(runs, hands, HEADS, until="therefore")
    with pytest.raises(BadInput, match="5 prompts") as refused:
        study.prepare(runs[:5], hands, HEADS, until="answer")
    assert "16 prompts" in refused.value.remedy
    with pytest.raises(BadInput, match="kind reasoning has no marker"):
        thinking.traces(runs, None, "answer", "reasoning")
    with pytest.raises(BadInput, match="asks its model once"):
        thinking.traces(runs, None, kind="calls")
    with pytest.raises(BadInput, match="is in tokens of"):
        thinking.traces(runs, Words("other words"), "answer")
    with pytest.raises(BadInput, match="rising shares"):
        Sizes(shares=(0.2, 0.1))


async def _loud(task, run, world):
    return {"loud": float("heads" in run.reply(0 if run.calls[0].kind == "ask" else 1).message.text)}


async def _quiet(task, run, world):
    return {"quiet": 0.0}


def test_judges_vote_on_recorded_and_resampled_runs_alike(coin):
    _, runs = coin
    by_text = HEADS.of(runs[:10], [1] * 10)
    judges = OwnJudge("loud", "a1", _loud), OwnJudge("quiet", "b2", _quiet)
    either = Voted(judges, "2/4")
    assert either.of(runs[:10], [1] * 10) == by_text
    both = Voted(judges, "3/4")
    assert both.of(runs[:10], [1] * 10) == [0.0] * 10
    assert both.name == "3/4 of loud a1, quiet b2"
    assert both.labels(runs[:10]).turned["2/4"] == sum(by_text) / 10


# ---- where thinking lies ---------------------------------------------------------------------------------------------


def test_reasoning_is_found_by_what_the_renderer_parses():
    words = Words("deep thought then words")
    thought, said = words.encode("deep thought then"), words.encode("words")
    start, stop, answer = thinking._reasoned((THINK, *thought, SAY, *said, END), words)
    assert (1, 1 + len(thought)) == (start, stop)
    assert answer == stop + 1
    assert thinking._reasoned((*said, END), words) == "no reply has reasoning"
    assert thinking._reasoned((THINK, *thought), words) == "its thinking never ended"


class Letters(Words):
    """A token for each character, and tags as models write them."""

    def parse(self, ids):
        return parse_reply(self.decode(ids))


def test_think_tags_of_many_tokens_and_white_space_belong_to_neither_side():
    letters = Letters("")
    text = "<think>\nfirst a, then b\n</think>\n\nThe answer: b"
    ids = letters.encode(text)
    assert len(ids) == len(text)
    start, stop, answer = thinking._reasoned(ids, letters)
    assert text[start:stop] == "first a, then b"
    assert text[stop:answer] == "\n</think>\n\n"


def test_the_last_marker_ends_the_thinking():
    letters = Letters("")
    text = "an answer may be 3; answer: 4"
    start, stop, end = thinking._marked(letters.encode(text), letters, "answer")
    assert text[start:stop] == "an answer may be 3; "
    assert text[stop:end] == "answer"


# ---- models without token ids, and agents that think in several calls ------------------------------------------------


@pytest.mark.whole
def test_an_endpoint_without_tokens_is_cut_in_its_text():
    runner = Runner(chatter, None, Markov(COIN, order=5), sampling={"max_tokens": 8})
    runs = runner.collect([Task(f"t{i}", f"question {i}") for i in range(80)], 1).runs
    assert runs[0].reply(runs[0].calls[1].seq).ids is None
    hands = Continuations(runner, outcome=HEADS)
    arms, _ = study.prepare(runs, hands, HEADS, until="answer", sizes=Sizes(shares=(0, 0.5, 1), n=4, swaps=2))
    assert {start.token for start in arms.resumed()[2]} == {len("hmm well so heads")}, "no cut leaves a lone blank"
    found = study.answer(arms)
    assert found.curve.flips[2].estimate == 0, "behind the whole of the thinking nothing is open"
    assert found.verdict.kind == "open until then"
    assert found.dependence.low > 0.9
    assert found.own.high < 0.2
    assert any("no probes of hidden states" in note for note in found.notes)


async def two_calls(run):
    chat = run.chat()
    await chat.ask(run.task.prompt)
    await chat.ask("now answer")


def by_coin(request):
    said = [node.message.text for node in request.path if node.message.role == "assistant"]
    if said:
        return f"answer {said[0]}"
    return "heads" if request.seed % 2 else "tails"


def test_earlier_calls_are_thinking_where_that_is_asked_for():
    runner = Runner(two_calls, None, Scripted({"": by_coin}))
    runs = runner.collect([Task(f"t{i}", f"question {i}") for i in range(60)], 1).runs
    hands = Continuations(runner, outcome=HEADS)
    arms, _ = study.prepare(runs, hands, HEADS, kind="calls", sizes=Sizes(shares=(0, 1), n=4))
    found = study.answer(arms)
    assert found.curve.flips[0].low > 0.3
    assert found.curve.flips[1].estimate == 0
    assert found.curve.time.estimate == 1
    assert found.verdict.kind == "open until then"
    assert found.saving is None
    assert found.dependence is None


@pytest.mark.whole
def test_a_reply_without_thinking_is_cut_along_its_tokens():
    corpus = "\n".join(f"well so {side} it is then" for side in ("heads", "tails"))
    runner = Runner(chatter, None, Markov(corpus, order=5, tokens=True), sampling={"max_tokens": 8})
    runs = runner.collect([Task(f"t{i}", f"question {i}") for i in range(60)], 1).runs
    heads = Shown(Behaviour("heads"))
    hands = Continuations(runner, outcome=heads)
    arms, _ = study.prepare(runs, hands, heads, kind="reply", sizes=Sizes(shares=(0, 0.5, 1), n=4))
    found = study.answer(arms)
    assert found.verdict.kind == "open until then"
    assert found.curve.time.estimate == 0.5, "the coin falls at the third of six tokens"
    assert found.curve.committed[-1].estimate == 1
    assert found.saving is None
    with pytest.raises(BadInput, match="itself the answer cannot be cut short"):
        study.answer(arms, saving_only=True)


def test_the_states_of_earlier_calls_are_read_where_they_are_thinking():
    renderer = ChatTemplateRenderer(tokenizer())
    model = local(renderer)
    runner = Runner(two_calls, None, model, sampling={"max_tokens": 6}, concurrency=64)
    runs = runner.collect([Task(f"t{i}", f"question {i}") for i in range(3)], 1).runs
    found, _ = thinking.traces(runs, renderer, kind="calls")
    read = states.features(model, found, positions=5)
    assert {kind: part["norm"].shape[:-1] for kind, part in (("first", read.first), ("along", read.along))} == {
        "first": (3,), "along": (3, 5)
    }  # fmt: skip
    assert np.array_equal(read.along["norm"][:, 0], read.first["norm"])
    assert np.array_equal(read.along["norm"][:, -1], read.last["norm"])
    first = next(source for source in sources_of([runs[1]]) if source.seq == found[1].calls[0])
    (alone,) = model.states([first.ids.tolist()], ["norm"], [[first.prompt]])
    assert read.first["norm"][1] == pytest.approx(alone[0, 0], abs=1e-4)


def test_reasoning_in_a_chat_template_is_cut_at_tokens_and_its_states_are_read():
    renderer = ChatTemplateRenderer(tokenizer())
    model = local(renderer)  # untrained, so that what it goes on with holds no outcome
    runner = Runner(chatter, None, model, sampling={"max_tokens": 12}, concurrency=64)
    yes = Shown(Behaviour("^yes"))
    runs = []
    for i, first in enumerate(runner.collect([Task(f"t{i}", f"question {i}") for i in range(24)], 1).runs):
        said = f"<think>\nweigh {i % 5}\n</think>\n\n{'yes' if i % 2 else 'no'}"
        ask = next(call.seq for call in first.calls if call.kind == "ask")
        runs.append(runner.fork(first, at=ask, reply=said)[0])
    hands = Continuations(runner, outcome=yes)
    arms, _ = study.prepare(runs, hands, yes, sizes=Sizes(shares=(0, 0.5, 1), n=2, swaps=1))
    one = arms.traces[3]
    assert renderer.decode(one.thought) == "weigh 3"
    assert renderer.decode(arms.close) == "\n</think>\n\n"
    start = one.answered(one.kept(0.5), arms.close)
    forced = hands.promote(start, 5).reply(one.seq)
    assert forced.message.reasoning == "weig"
    assert renderer.decode(forced.ids).partition("</think>")[0].endswith("<think>\nweig\n")
    found = study.answer(arms)
    assert found.verdict.kind == "cannot tell"
    assert "same in every one" in found.verdict.remedy
    assert found.probes[-1].name == "after 100% of the thinking"
    assert {probe.auroc.n for probe in found.probes} == {24}
