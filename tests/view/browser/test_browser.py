"""The page in a browser, each thing a person does with it: find a run, see where it turned, fork it there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

from clew.store import Run
from tests.view.browser.browsing import ask_of, environment, rows, run_of, shows, until

COMING = """
import sys, time
from clew.core.records import Call, RunRow
from clew.store import new_id, open_store
store = open_store(sys.argv[1])
run = new_id()
store.put_run(RunRow(run, agent="clew.harness.agents:player", task_id="coming", created=time.time()))
store.put_call(run, Call(run, 0, "open", b"x" * 16, 0, 0, key=b"k" * 16, text="hello", started=time.time()))
store.commit()
print(run, time.time(), flush=True)
sys.stdin.readline()
store.put_call(run, Call(run, 1, "end", b"y" * 16, 1, 1, key=b"l" * 16, action="done", started=time.time()))
store.commit()
sys.stdin.readline()
"""


# 1. Runs


def test_runs_are_listed_filtered_sorted_and_searched(look, store):
    look.open("#/runs")
    total = len(store.find())
    look.page.wait_for_function("n => document.querySelector('.count').textContent.startsWith(n)", arg=f"{total:,} run")
    first = rows(look).first.inner_text()
    for piece in ("household", "player", "done"):
        assert piece in first
    assert rows(look).count() < 80 < total, "only what is near the window is in the document"

    look.page.get_by_role("button", name="failed", exact=True).click()
    failed = len(store.find("return<=0.5"))
    look.page.wait_for_function(
        "n => document.querySelector('.count').textContent.startsWith(n)", arg=f"{failed:,} run"
    )
    assert "return" in look.route

    look.page.locator(".heads button", has_text="Steps").click()
    wanted = store.find("return<=0.5 sort:-steps", 5)
    assert until(lambda: look.texts(".row .c-run")[:5] == wanted), look.texts(".row .c-run")[:5]

    look.press("/")
    look.page.keyboard.type(" fridge")
    said = store.find('return<=0.5 text:"fridge" sort:-steps')
    look.page.wait_for_function(
        "n => document.querySelector('.count').textContent.startsWith(n)", arg=f"{len(said):,} run"
    )
    assert until(lambda: look.texts(".row .c-run")[:3] == said[:3])


def test_a_query_that_does_not_parse_is_explained(look):
    look.open("#/runs?q=stpes%3E3")
    alert = look.page.get_by_role("alert")
    alert.wait_for()
    assert "steps" in alert.inner_text()
    look.faults.clear()  # the browser notes every answer of 400
    look.page.locator("input[type=search]").fill("no-such-word-anywhere")
    look.page.get_by_text("No run fits").wait_for()


def test_groups_fold_with_their_spread(look, store):
    look.open("#/runs?q=name%3Dquickstart%2F*&fold=1")
    rows(look).first.wait_for()
    groups = [g for g in map(store.group, store.groups()) if g.name.startswith("quickstart/")]
    assert f"{len(groups)} row" in look.page.locator(".count").inner_text()
    assert rows(look).first.locator(".spread i").count() == 8
    assert re.search(r"\[.*, .*\]", rows(look).first.locator(".c-mean").inner_text())
    look.press("j", "Enter")
    look.page.wait_for_selector(".graph svg .node")
    assert look.route.startswith("#/group/")


def test_a_run_of_another_process_appears_and_ends_without_reload(look, lab):
    look.open("#/runs")
    rows(look).first.wait_for()
    line = [sys.executable, "-c", COMING, str(lab / ".clew/store.db")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as other:
        run, _ = other.stdout.readline().split()
        row = look.page.locator(f"#r-{run}")
        row.wait_for()  # how long it may take, 1 s, is measured by benchmarks/viewer_browser.py
        assert "running" in row.inner_text()
        other.stdin.write("\n")
        other.stdin.flush()
        assert until(lambda: "done" in row.inner_text())
        other.stdin.write("\n")


# 2. A run


def test_a_run_has_its_tree_transcript_tokens_and_what_produced_them(look, store):
    run = run_of(store)
    seq = ask_of(store, run)
    look.open(f"#/run/{run}@{seq}")
    look.page.wait_for_selector(".call.ask .tok")
    call = look.page.locator(f".call[data-seq='{seq}']")
    assert call.get_attribute("aria-current") == "true"
    tokens = call.locator(".tok.sampled")
    kept = store.calls(run, seq, seq + 1)[0]
    assert tokens.count() == len(kept.logprobs)
    assert "".join(tokens.all_text_contents()).replace("∎", "").strip() == store.node(kept.node_out).message.text
    shades = tokens.evaluate_all("els => els.map(el => el.style.backgroundColor)")
    assert len(set(shades)) > 1
    assert "nats" in look.page.locator(".legend").inner_text()
    inspector = look.page.locator(".inspect")
    for piece in ("Who answered", "Weights version", "Sampling", "in force", str(kept.seed), "Prompt tokens", "Took"):
        assert piece in inspector.inner_text()
    tokens.nth(1).click()
    assert until(lambda: look.route.endswith("+1"))
    assert until(lambda: shows(inspector.inner_text().partition("Logprob")[2].partition("nats")[0], kept.logprobs[1]))
    assert look.page.locator(".tree .here").inner_text().startswith(run)


def test_methods_lie_side_by_side_and_shade(look, store):
    run = run_of(store, "has=g2po steps>4")
    look.open(f"#/run/{run}@1")
    look.page.wait_for_selector(".call .tok")
    look.page.locator(".tools select").select_option("g2po")
    look.page.wait_for_selector(".call .val")
    value = next(a.value for a in store.annotations([run], "g2po", "call") if a.seq == 1)
    assert until(lambda: shows(look.page.locator(".inspect .values").inner_text(), value))
    assert shows(look.page.locator(".call[data-seq='1'] .val").inner_text(), value)
    assert until(lambda: look.page.locator(".strip svg rect").count() > 2)  # the strip asks for its figures itself
    look.page.wait_for_selector(".strip svg[aria-label^=g2po]")
    look.press("Escape", "m")
    low = min(
        (a for a in store.annotations([run], "g2po", "call") if a.value is not None), key=lambda a: (a.value, a.seq)
    )
    assert until(lambda: look.route.endswith(f"@{low.seq}"))


# 3. Fork here


def test_forks_from_the_page_arrive_with_their_rate_and_line(look, store, lab):
    run = run_of(store)
    seq = ask_of(store, run)
    before = set(store.find())
    look.open(f"#/run/{run}@{seq}")
    look.page.wait_for_selector(".call[aria-current]")
    look.press("f")
    panel = look.page.locator(".forkbox")
    panel.get_by_label("What is changed").select_option("reply")
    panel.get_by_label("The whole reply").fill("open fridge")
    panel.get_by_label("Samples").fill("3")
    panel.get_by_label("Seed", exact=True).select_option("fresh")
    command = panel.locator(".command")
    assert until(lambda: "open fridge" in command.inner_text() and "fresh" in command.inner_text())
    look.shot("fork-1280-light")
    line = command.text_content()
    panel.get_by_role("button", name="Run 3 forks").click()
    look.page.wait_for_selector(".job.done", timeout=90_000)
    job = look.page.locator(".job.done").first
    assert job.locator("tbody tr").count() == 3
    assert "Wilson" in job.locator(".rate").inner_text()
    assert "3 runs" in job.locator(".rate").inner_text()
    made = set(store.find()) - before
    assert len(made) == 3
    assert all(store.row(fork).parent == f"{run}@{seq}" for fork in made)
    assert until(lambda: look.page.locator(".tree li").count() == 4)
    assert "open fridge" in look.page.locator(".tree").inner_text()
    look.shot("forked-1280-light")

    words = shlex.split(line)
    assert words[:2] == ["clew", "fork"]
    done = subprocess.run([sys.executable, "-m", "clew.cli", *words[1:], "--json"], cwd=lab, env=environment(),
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["forks"]) == 3


def test_a_fork_inside_a_reply_keeps_and_marks_the_tokens_before(look, store):
    run = run_of(store)
    seq = ask_of(store, run)
    look.open(f"#/run/{run}@{seq}+1")
    look.page.wait_for_selector(".tok.chosen")
    look.press("f")
    panel = look.page.locator(".forkbox")
    panel.get_by_text("Keeps 1 token").wait_for()
    panel.get_by_label("Samples").fill("1")
    assert until(lambda: f"{run}@{seq}+1" in panel.locator(".command").inner_text())
    panel.get_by_role("button", name="Run 1 fork").click()
    job = look.page.locator(".job.done", has_text=f"@{seq}+1")
    job.wait_for(timeout=90_000)
    job.locator("a.id").first.click()
    # The panel of the run before draws the kept token too: only a token within the call is one of the fork's page.
    look.page.wait_for_selector(f".call[data-seq='{seq}'] .tok.forced")
    assert look.page.locator(f".call[data-seq='{seq}'] .tok.forced").count() == 1


def test_what_cannot_be_forked_is_refused_with_a_remedy(look, store):
    run = run_of(store)
    look.open(f"#/run/{run}@{ask_of(store, run)}?do=fork")
    panel = look.page.locator(".forkbox")
    panel.get_by_label("Model").fill("no-such-model")
    panel.get_by_label("Samples").fill("1")
    assert until(
        lambda: "no-such-model" in panel.locator(".command").inner_text() or panel.get_by_role("alert").count()
    )
    if not panel.get_by_role("alert").count():
        panel.get_by_role("button", name="Run 1 fork").click()
    panel.get_by_role("alert").first.wait_for()
    assert "no-such-model" in panel.get_by_role("alert").first.inner_text()
    look.faults.clear()


# 4. Diff


def test_a_diff_shows_where_two_branches_part_and_what_differs(look, store):
    row = store.row(until(lambda: store.find("origin=fork -stop=open", 1), 60)[0])  # of the tests before
    parent = row.parent.split("@")[0]
    seq = str(Run(store, parent).diff(Run(store, row.id)).seq)
    look.open(f"#/diff/{parent}/{row.id}")
    look.page.wait_for_selector(".pair.parting")
    assert look.page.locator(".pair.parting .call").first.get_attribute("data-seq") == seq
    assert look.page.locator(".pair.parting .call").count() == 2
    assert look.page.locator(".pair.same .call").count() >= 1
    assert "seed" in look.page.locator(".differs").inner_text() or "reply" in look.page.locator(".differs").inner_text()
    look.press("Enter")
    assert until(lambda: look.route == f"#/run/{parent}@{seq}")


# 5. Group


def test_a_group_draws_its_state_graph_and_lists_the_steps_of_an_edge(look, store):
    group = next(g for g in map(store.group, store.groups()) if g.name.startswith("quickstart/") and len(g.runs) == 8)
    look.open(f"#/group/{group.id}")
    look.page.wait_for_selector(".graph .edge")
    assert look.page.locator(".returns .mark").count() == 8
    look.press("l")
    look.page.wait_for_selector(".edgepanel .steps a")
    taken = look.page.locator(".edgepanel .steps a").first.inner_text()
    run, seq = taken.split("@")
    assert run in group.runs
    assert store.calls(run, int(seq), int(seq) + 1)[0].kind in ("act", "ask")
    look.page.locator(".edge .hit").nth(1).dispatch_event("click")
    assert look.page.locator(".edge.chosen").count() == 1
    look.shot("group-1280-light")


# 6. Training


def test_curves_of_two_trainings_lie_over_each_other_and_lead_to_rows(look, store):
    look.open("#/training/quickstart,second")
    look.page.wait_for_selector("figure .curve.mean")
    figure = look.page.locator("figure", has_text="success").first
    assert figure.locator(".curve.mean").count() == 2
    canvas = figure.locator(".canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] - 14, "y": box["height"] / 2})
    look.page.wait_for_selector(".rowspanel tbody tr")
    assert "step 2" in look.page.locator(".rowspanel h2").inner_text()
    cursor = look.page.locator(".rowspanel tbody a").first.inner_text()
    run, seq = cursor.split("@")
    assert store.calls(run, int(seq), int(seq) + 1)[0].kind == "ask"
    assert look.page.locator(".rowspanel .groups a").count() >= 1
    look.shot("training-1280-light")
    look.press("j", "Enter")
    assert until(lambda: look.route == f"#/run/{run}@{seq}")


# 7. Reports


def test_reports_show_estimate_interval_and_n(look, store):
    look.open("#/reports")
    look.page.wait_for_selector(".report")
    text = look.page.locator(".reports").first.inner_text()  # those of the store itself
    reports = list(store.reports().values())
    assert len(reports) >= 2
    for report in reports:
        assert report.claim in text
        assert f"n = {report.n}" in text
        intervals = re.findall(r"\[([^],]*), ([^],]*)\]", text)
        assert any(shows(low, report.low) and shows(high, report.high) for low, high in intervals)
