"""A data file and rewards as a taskset: columns, splits, ids, answers kept, verdicts, and every bad input by name."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clew
from clew.core.errors import BadInput, CannotRestore, Undecided, UnknownName
from clew.core.registry import build, register
from clew.core.values import Message
from clew.exchange import files
from clew.exchange.dataset.layout import Layout
from clew.exchange.dataset.table import Table, held
from clew.exchange.dataset.tasks import Dataset
from clew.harness import Runner
from clew.models.fakes import Scripted
from clew.worlds.contract import check_taskset

register("tasksets", "dataset", Dataset)  # as the entry point does
ROWS = [{"question": f"{a} plus {b}", "answer": str(a + b), "level": a % 3} for a in range(8) for b in range(5)]
REWARD = """
import asyncio, time

def score(reply, answer):
    return float(answer in reply.split())

def short(reply):
    return 1 / (1 + len(reply))

def judge_like(task, run):
    return task.secret["answer"] == "4" and len(run.calls) == 3

def trl(prompts, completions, level, **columns):
    assert columns["answer"] and isinstance(prompts[0], str)
    return [float(level[0]) + 0.5 for _ in completions]

async def later(reply, level=None):
    await asyncio.sleep(0)
    return True

def parts(reply):
    return {"form": 0.25, "sense": 0.5}

def none(reply): return None
def raises(reply): raise KeyError("units")
def hangs(reply): time.sleep(1000)
def text(reply): return "good"
def nan(reply): return float("nan")
def infinite(reply): return float("inf")
def empty(reply): return {}
def many(completions): return [1.0, 2.0]
def unknown(reply, colour): return 1.0
def by_place(reply, /): return 1.0
NUMBER = 5
"""


def write(path: Path, rows=ROWS) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward.py").write_text(REWARD)
    return write(tmp_path / "questions.jsonl")


def judged(taskset, reply="4 is it", row=None):
    """What the taskset's judge says of a reply to a row, and the reason where it says nothing."""
    task = row or next(taskset.find(name) for name in taskset._rows if taskset._rows[name].answer == "4")
    node = SimpleNamespace(message=Message("assistant", reply), ids=None)
    call = SimpleNamespace(kind="ask", node_out=b"x", error="", state=b"", finish="stop", action="")
    run = SimpleNamespace(calls=[call, call, call], store=SimpleNamespace(node=lambda key: node))
    return asyncio.run(taskset.judge(task, run, None))


# -- rows ----------------------------------------------------------------------------------------------------------


def test_the_whole_contract_of_tasksets(data):
    done = check_taskset(clew.dataset(data, "reward.py:score"), acts=lambda task: ["4"])
    assert {"check_ref", "check_sampling", "check_find", "check_snapshots", "check_judge"} <= set(done)


def test_columns_are_found_by_their_names_and_said_in_plain_words(data):
    found = clew.dataset(data)
    task = found.sample(1)[0]
    assert task.prompt == ROWS[task.secret["row"] - 1]["question"]
    assert found.about.startswith(
        "questions.jsonl: 40 rows; prompt from column 'question'; answer from column 'answer'"
    )
    assert "train 27, eval 7, test 6 (by hash, 10% held out for each)" in found.about


def test_a_template_takes_named_columns_and_the_answer_stays_secret(data):
    task = clew.dataset(data, prompt="Level {level}: {question} Answer briefly.", visible=["level"]).sample(1)[0]
    row = ROWS[task.secret["row"] - 1]
    assert task.prompt == f"Level {row['level']}: {row['question']} Answer briefly."
    assert task.data == {"level": row["level"]}
    assert task.secret["answer"] == row["answer"]
    assert "answer" not in repr(task)
    assert '"answer"' not in Runner("answerer", clew.dataset(data), None).row(task).task


def test_messages_and_a_system_prompt_are_said_in_order(tmp_path):
    talk = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "2+2"},
    ]
    rows = [{"messages": [*talk, {"role": "assistant", "content": "4"}]}]
    task = clew.dataset(rows, system="Be brief.", held_out=0).sample(1)[0]
    assert task.prompt == "2+2"
    assert task.secret["answer"] == "4"
    assert [m["role"] for m in task.data["messages"]] == ["system", "user", "assistant", "user"]
    seen = []
    model = Scripted({"": lambda request: seen.append([n.message.role for n in request.path]) or "4"})
    taskset = clew.dataset(rows, "exact", system="Be brief.", held_out=0)
    assert Runner("answerer", taskset, model).collect([task], 1)[0].rewards.tolist() == [1.0]
    assert seen == [["system", "user", "assistant", "user"]]


def forms(folder: Path):
    yield write(folder / "a.jsonl")
    (folder / "a.json").write_text(json.dumps(ROWS))
    yield folder / "a.json"
    lines = ["question,answer,level", *(f'"{r["question"]}",{r["answer"]},{r["level"]}' for r in ROWS)]
    (folder / "a.csv").write_text("\n".join(lines))
    yield folder / "a.csv"


def test_every_form_of_a_file_gives_the_same_tasks(tmp_path):
    ids = [[task.id for task in clew.dataset(path).sample(100)] for path in forms(tmp_path)]
    parquet = pytest.importorskip("pyarrow.parquet", reason="did not run: pyarrow is not installed")
    table = pytest.importorskip("pyarrow").Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "a.parquet")
    ids.append([task.id for task in clew.dataset(tmp_path / "a.parquet").sample(100)])
    ids.append([task.id for task in clew.dataset(ROWS).sample(100)])
    assert len(ids[0]) > 25
    assert all(one == ids[0] for one in ids)


def test_what_hugging_face_saved_is_read_with_its_splits(tmp_path):
    datasets = pytest.importorskip("datasets", reason="did not run: the package datasets is not installed")
    both = datasets.DatasetDict(
        {"train": datasets.Dataset.from_list(ROWS[:30]), "validation": datasets.Dataset.from_list(ROWS[30:])}
    )
    both.save_to_disk(str(tmp_path / "saved"))
    for found in (clew.dataset(tmp_path / "saved"), clew.dataset(both)):
        assert len(found.sample(100)) == 30
        assert len(found.sample(100, split="eval")) == 10
        with pytest.raises(BadInput, match="no row in the split test"):
            found.sample(1, split="test")
    assert len(clew.dataset(both["train"], held_out=0).sample(100)) == 30


cells = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=4).filter(str.strip)


@given(st.lists(cells, min_size=1, max_size=40), st.floats(0, 0.49))
def test_splits_never_share_a_question_and_rows_keep_theirs_when_others_come(questions, share):
    layout = Layout(held_out=share)
    rows = layout.rows(held([{"question": q, "answer": str(i)} for i, q in enumerate(questions)]))
    homes = {}
    for row in rows:
        assert homes.setdefault(row.prompt, row.split) == row.split
    assert len({row.id for row in rows}) == len(rows) == len(questions)
    more = layout.rows(held([{"question": q, "answer": "?"} for q in [*questions, "one more?"]]))
    assert [(r.id, r.split) for r in more[: len(rows)]] == [(r.id, r.split) for r in rows]


def test_sampling_gives_other_rows_for_other_seeds_and_all_where_there_are_few(data):
    found = clew.dataset(data, held_out=0.25)
    assert found.sample(5, seed=1) != found.sample(5, seed=2)
    parts = [{task.id for task in found.sample(1000, split=split)} for split in ("train", "eval", "test")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 40
    assert all(parts)


def test_columns_of_ids_splits_and_limits_count(tmp_path):
    rows = [{"prompt": f"q{i}", "answer": "a", "key": f"k{i}", "part": part, "most": {"steps": 2}}
            for i, part in enumerate(("train", "dev", "test"))]  # fmt: skip
    found = clew.dataset(write(tmp_path / "a.jsonl", rows), id="key", split="part", limits="most")
    assert [found.sample(9, split=split)[0].id for split in ("train", "eval", "test")] == ["k0", "k1", "k2"]
    assert found.find("k1").limits.steps == 2


# -- bad rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "how", "said"),
    [
        ('{"question": "a"}\n{"question": ""}\n', {}, r"a\.jsonl:2 has nothing in 'question'"),
        ('{"question": "a"}\n{"other": 1}\n', {}, r"a\.jsonl:2 has nothing in 'question'"),
        ('{"question": "a"}\n{"question": \n', {}, r"a\.jsonl:2 is not JSON"),
        ('{"question": "a"}\n[1]\n', {}, r"a\.jsonl:2 is '\[1\]', not an object|a\.jsonl:2 is \[1\], not an object"),
        ("", {}, "holds no row"),
        ("\n \n", {}, "holds no row"),
        ('{"question": "a"}\n', {"answer": "gold"}, "no column 'gold'"),
        ('{"question": "a"}\n', {"prompt": "{quest}"}, "no column 'quest'"),
        ('{"question": "a"}\n', {"prompt": "{question.__class__}"}, "no plain column"),
        ('{"question": "a"}\n', {"prompt": "{question!r}"}, "no plain column"),
        ('{"question": "a"}\n', {"prompt": "{question"}, "no template"),
        ('{"question": "a"}\n', {"prompt": "{{}}"}, "names no column"),
        ('{"colour": "a"}\n', {}, "no column of a.jsonl is called as prompts are"),
        ('{"question": "a", "answer": null}\n', {}, "a.jsonl:1 has nothing in 'answer'"),
        ('{"question": "a", "id": 1}\n{"question": "b", "id": 1}\n', {}, "have the id '1'"),
        ('{"question": "a", "s": "king"}\n', {"split": "s"}, "has 'king' in 's'"),
        ('{"question": "a", "s": "train"}\n{"question": "a", "s": "test"}\n', {"split": "s"}, "asks in 'test' what"),
        ('{"messages": [{"role": "king", "content": "a"}]}\n', {}, "for a message"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}\n', {}, "no message to answer"),
        ('{"question": "a", "question": "b"}\n', {}, "stands twice"),
        ('{"question": "a", "x": NaN}\n', {}, "NaN"),
        ('{"question": ' + "[" * 300 + "]" * 300 + "}\n", {}, "nested"),
        ('{"question": "a"}\n', {"held_out": 0.5}, "held_out"),
        ('{"question": "a"}\n', {"visible": ["x"]}, "no column 'x'"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_with_what_to_do(tmp_path, text, how, said):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(BadInput, match=said) as error:
        clew.dataset(tmp_path / "a.jsonl", **how)
    assert error.value.remedy
    assert "\n" not in error.value.message


def test_other_files_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LINE", 1000)
    (tmp_path / "long.jsonl").write_text('{"question": "' + "a" * 2000 + '"}\n')
    (tmp_path / "long.csv").write_text("question\n" + "a" * 2000 + "\n")
    (tmp_path / "torn.csv").write_text("question,answer\na\n")
    (tmp_path / "open.csv").write_text('question,answer\n"a,b\n')
    (tmp_path / "twice.csv").write_text("question,question\na,b\n")
    (tmp_path / "latin.csv").write_bytes(b"question\n\xff\n")
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "no.json").write_text("{}")
    names = "long.jsonl long.csv torn.csv open.csv twice.csv latin.csv a.txt folder no.json absent.jsonl"
    for name in names.split():
        with pytest.raises(BadInput) as error:
            clew.dataset(tmp_path / name)
        assert error.value.remedy
        assert name in error.value.message
    for thing in ("a string is a path", 5, [5], {"a": 1}, []):
        with pytest.raises(BadInput):
            clew.dataset(thing)


# -- rewards -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reward"),
    [("score", 1), ("short", 0.125), ("judge_like", 1), ("trl", None), ("later", 1), ("parts", 0.75)],
)
def test_signatures_are_told_by_their_parameters(data, name, reward):
    found = clew.dataset(data, f"reward.py:{name}")
    if name == "trl":
        assert judged(found)["reward"] in (0.5, 1.5, 2.5)
        return
    said = judged(found)
    assert said["reward"] == reward
    if name == "parts":
        assert said["parts.form"] == 0.25


def test_several_rewards_are_summed_and_each_is_kept(data):
    found = clew.dataset(data, ["reward.py:score", "-0.5*reward.py:short", "0*exact", "2 * numeric"])
    said = judged(found, "4 is")
    assert said == {"reward": 1 - 0.5 / 5 + 2, "score": 1, "short": 0.2, "exact": 0, "numeric": 1}
    again = build("tasksets", found.ref)
    assert again.ref == found.ref
    again.sample(0)
    assert judged(again, "4 is") == said


def test_functions_at_hand_and_pairs_of_weight_and_function(data):
    found = clew.dataset(ROWS, [(2, lambda reply: 0.5), "exact"])
    assert judged(found, "4")["reward"] == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "raises",
            r"reward.py:raises raised KeyError: 'units' \(line \d+ of reward.py\) for row \d+ \(row-\w+\)\. Mend",
        ),
        ("hangs", r"reward.py:hangs gave no reward within 0.2 s for row \d+ .* Make it end"),
        ("text", r"reward.py:text returned 'good' of type str, which is no number, for row \d+ .* Return a finite"),
        ("nan", "reward.py:nan returned nan, which is no finite number, for row"),
        ("infinite", "reward.py:infinite returned inf, which is no finite number, for row"),
        ("empty", "reward.py:empty returned an empty mapping for row"),
        ("many", r"reward.py:many returned \[1.0, 2.0\] and not a list of one reward"),
        ("none", r"reward.py:none returned None for row \d+"),
    ],
)
def test_a_reward_that_gives_none_leaves_the_run_undecided_and_says_why(data, name, said):
    found = clew.dataset(data, [f"reward.py:{name}", "reward.py:score"], seconds=0.2)
    began = time.monotonic()
    with pytest.raises(Undecided, match=said) as error:
        judged(found)
    assert error.value.parts == {"score": 1}
    assert time.monotonic() - began < 100  # a bound of the test, not a timing: it sleeps for 1000 s


def test_undecided_is_kept_in_the_record_and_left_out_of_means(data):
    groups = Runner("answerer", clew.dataset(data, ["reward.py:none", "reward.py:score"]), Scripted({"": "4"})).collect(
        clew.dataset(data).sample(2), 2
    )
    run = groups.runs[0]
    assert run.reward is None
    kept = {a.method: a for a in run.annotations(target="run")}
    assert set(kept) == {"undecided", "score"}
    assert "reward.py:none returned None" in json.loads(kept["undecided"].data)["error"]
    with pytest.raises(BadInput, match=r"no run of these groups has a reward: reward\.py:none returned None"):
        groups.success()
    with pytest.raises(BadInput, match=r"no run of these groups has a reward: reward\.py:none"):
        clew.credit.grpo(groups)


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("exactly", "no reward is called 'exactly'"),
        ("reward.py", "no function in it is named"),
        ("reward.py:absent", "cannot be loaded"),
        ("absent.py:score", "cannot be loaded"),
        ("reward.py:NUMBER", "is no function"),
        ("reward.py:unknown", "takes 'colour', which is neither known nor a column"),
        ("reward.py:by_place", "takes 'reply' by place"),
        ("numeric(tolerence=1)", "unexpected keyword|got an unexpected"),
        ("numeric(tolerance=1", "is not a reference"),
        ("judge", "names no model"),
        ("1e999*exact", "not finite"),
        (5, "no reward was given|is no reward"),
        ([5], "is no reward"),
    ],
)
def test_a_reward_that_cannot_be_used_is_refused_before_any_run(data, reward, said):
    with pytest.raises(BadInput, match=said) as error:
        clew.dataset(data, reward)
    assert error.value.remedy


def test_a_scorer_without_an_answer_to_compare_with_is_undecided(data):
    found = clew.dataset([{"question": "a"}], "exact", held_out=0)
    with pytest.raises(Undecided, match=r"compares with the answer, and row 1 .* has none"):
        judged(found, row=found.sample(1)[0])
    patterned = clew.dataset([{"question": "a"}], "regex(pattern='x+')", held_out=0)
    assert judged(patterned, "xx", patterned.sample(1)[0]) == {"reward": 1}


def test_a_judges_call_is_kept_with_its_grade(data):
    found = clew.dataset(data, "judge(model='grader')")
    answers = ["Right.\nGrade: 8", "Grade: 12", "I follow the reply: fine"]
    found.load_model = lambda ref: Scripted({"": lambda request: answers[0]})
    groups = Runner("answerer", found, Scripted({"": "4\nGrade: 10"})).collect(found.sample(1), 1)
    kept = {a.method: a for a in groups.runs[0].annotations(target="run")}
    assert kept["reward"].value == kept["judge"].value == 0.8
    said = json.loads(kept["judge"].data)
    assert said["said"] == answers[0]
    assert "4\nGrade: 10" in said["asked"]
    assert said["model"] == "grader"
    for _ in range(2):
        answers.pop(0)
        other = clew.dataset(data, "judge(model='grader')")
        other.load_model = found.load_model
        with pytest.raises(Undecided, match="gave no grade from 0 to 10"):
            judged(other)


# -- another process, and what has changed meanwhile ---------------------------------------------------------------


def test_runs_are_forked_replayed_and_judged_again_from_their_record_alone(data, tmp_path):
    found = clew.dataset("questions.jsonl", "reward.py:short")
    made = Runner("answerer", found, clew.model("echo"), tmp_path / "s.db").collect(found.sample(3), 2)
    os.makedirs(tmp_path / "elsewhere")
    program = f"""
import clew
from clew.core.registry import register
from clew.exchange.dataset.tasks import Dataset
from clew.harness import Runner
register("tasksets", "dataset", Dataset)
run = clew.open_store({str(tmp_path / "s.db")!r}).run({made.runs[0].id!r})
runner = Runner.of(run.store, run)
print(runner.replay(run).calls, runner.fork(run, 1, n=2).rewards.tolist(), runner.judge([run])[0].value)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path / "elsewhere", check=False
    )
    reward = made.runs[0].reward
    assert done.stdout.strip() == f"3 [{reward}, {reward}] {reward}", done.stderr


@pytest.mark.parametrize("what", ["data changed", "data gone", "reward changed", "reward gone"])
def test_what_changed_since_the_runs_is_refused_where_it_matters(data, what):
    found = clew.dataset(data, "reward.py:score")
    runner = Runner("answerer", found, Scripted({"": "4"}))
    run = runner.collect(found.sample(1), 1).runs[0]
    path = data if what.startswith("data") else Path("reward.py")
    path.write_text(path.read_text() + "\n") if what.endswith("changed") else path.unlink()
    again = Runner.of(runner.store, run, model=runner.model)
    assert again.replay(run).calls == 3, "a replay needs neither"
    before = runner.store.find()
    for act in (lambda: again.fork(run, 1), lambda: again.judge([run])):
        with pytest.raises(CannotRestore, match=r"is not what it was|is gone|is not to be had") as error:
            act()
        assert path.name in error.value.message
        assert "--data" in error.value.remedy
    assert runner.store.find() == before, "no fork is left behind"


def test_rows_that_only_a_program_held_cannot_be_judged_elsewhere():
    found = clew.dataset(ROWS, lambda reply: 1.0)
    again = build("tasksets", found.ref)
    with pytest.raises(CannotRestore, match="only their own program held"):
        judged(again, row=found.sample(1)[0])
    with pytest.raises(UnknownName):
        again.find("x")


def test_an_unknown_row_is_refused(data):
    with pytest.raises(UnknownName, match=r"is no row of questions\.jsonl"):
        clew.dataset(data).find("nothing")


def test_a_table_knows_its_columns_in_order():
    assert Table("x", [(1, {"b": 1}), (2, {"a": 1, "b": 2})], "").columns == ["b", "a"]
