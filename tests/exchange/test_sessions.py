"""Session logs of coding agents become runs: messages, reasoning, tool calls, tokens, models, times, sub-agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clew.core.errors import BadInput, BadRecord
from clew.core.values import Message, ToolCall, Usage
from clew.exchange import files, files_in, import_file, recall
from clew.exchange.sessions.log_lines import in_order, seconds
from clew.exchange.telemetry.to_spans import spans_of_run
from clew.harness import Runner
from clew.store import MemoryStore, Run

T0 = 1_767_261_600  # 2026-01-01T10:00:00Z


def at(second: float) -> str:
    return f"2026-01-01T10:{int(second) // 60:02d}:{second % 60:06.3f}Z"


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def imported(path: Path, *, left: int = 0) -> Run:
    store, lost = MemoryStore(), list[BadRecord]()
    (name,) = import_file(store, path, on_bad=lost.append)
    assert len(lost) == left, lost
    assert not store.verify()
    run = Run(store, name)
    assert Runner.of(store, run).replay(run).calls == len(run.calls)
    assert list(spans_of_run(run))
    return run


# Claude Code


def claude(id, parent, kind, message, second=0.0, **more):
    common = {"sessionId": "s1", "cwd": "/repo", "version": "2.1.330", "gitBranch": "main", "isSidechain": False}
    return {
        **common,
        "type": kind,
        "uuid": id,
        "parentUuid": parent,
        "message": message,
        "timestamp": at(second),
        **more,
    }


def said(*blocks, id="m1", model="claude-sonnet-4-5", **usage):
    return {"role": "assistant", "id": id, "model": model, "content": list(blocks), "usage": usage}


def used(id, name="Bash", **given):
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def result(id, text):
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}


def text(words):
    return {"type": "text", "text": words}


TOOK = {"input_tokens": 4, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 10, "output_tokens": 7}
CLAUDE = [
    {"type": "ai-title", "aiTitle": "Fix the price", "sessionId": "s1"},
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
    claude("u1", None, "user", {"role": "user", "content": "fix the price"}, 1),
    claude("a1", "u1", "assistant", said({"type": "thinking", "thinking": "look", "signature": "s"}, **TOOK), 3),
    claude("a2", "a1", "assistant", said(text("I look."), **TOOK), 3.5),
    claude("a3", "a2", "assistant", said(used("t1", command="ls"), **TOOK), 4),
    claude("a4", "a3", "assistant", said(used("t2", command="cat a"), **TOOK), 4.5),
    claude("r2", "a4", "user", result("t2", "int"), 5),  # the second call ended first
    claude("r1", "a3", "user", result("t1", "a b"), 6),
    claude("a5", "r1", "assistant", said(text("Done."), id="m2", input_tokens=120, output_tokens=2), 8),
]


def test_a_session_of_claude_code(tmp_path):
    run = imported(written(tmp_path / "s1.jsonl", *CLAUDE))
    it = recall(run)
    calls = (ToolCall("t1", "Bash", '{"command": "ls"}'), ToolCall("t2", "Bash", '{"command": "cat a"}'))
    assert [(m.role, m.text) for m in it.messages] == [
        ("user", "fix the price"),
        ("assistant", "I look."),
        ("tool", "a b"),
        ("tool", "int"),
        ("assistant", "Done."),
    ]
    assert (it.messages[1].reasoning, it.messages[1].calls) == ("look", calls)
    assert [m.usage for m in it.meters] == [Usage(114, 7, 100), Usage(120, 2)]
    assert [(m.started - T0, m.seconds) for m in it.meters] == [(1, 3.5), (6, 2)]
    assert it.model == "claude-sonnet-4-5"
    about = {"session": "s1", "cwd": "/repo", "version": "2.1.330", "branch": "main", "title": "Fix the price"}
    assert it.fields["claude_code"] == about
    assert [c.kind for c in run.calls] == ["open", "ask", "act", "act", "ask", "end"]
    assert run.row.created == T0 + 1


def test_sub_agents_and_what_follows_a_compaction_are_conversations_of_their_own(tmp_path):
    aside = {"isSidechain": True, "agentId": "q1"}
    lines = [
        *CLAUDE,
        claude("q1", None, "user", {"role": "user", "content": "search"}, 9, **aside),
        claude(
            "q2",
            "q1",
            "assistant",
            said(text("found"), id="m7", model="claude-haiku-4-5", output_tokens=3),
            10,
            **aside,
        ),
        claude("c1", None, "system", None, 11, subtype="compact_boundary", logicalParentUuid="a5"),
        claude("c2", "c1", "user", {"role": "user", "content": "Summary: fixed."}, 12, isCompactSummary=True),
        claude("c3", "c2", "assistant", said(text("And on."), id="m8", output_tokens=1), 13),
    ]
    path = written(tmp_path / "s1.jsonl", *lines)
    folder = tmp_path / "s1" / "subagents"
    folder.mkdir(parents=True)
    own = {"isSidechain": True, "agentId": "z"}
    prompt = claude("z1", None, "user", {"role": "user", "content": "review"}, 14, **own)
    written(folder / "agent-z.jsonl", prompt, claude("z2", "z1", "assistant", said(text("fine"), id="m9"), 15, **own))
    it = recall(imported(path))
    assert len(it.messages) == 5
    talks = [[m.text for m in talk] for talk in it.others]
    assert talks == [["Summary: fixed.", "And on."], ["search", "found"], ["review", "fine"]]
    assert it.other_meters[1][0].model == "claude-haiku-4-5"


def test_a_prompt_given_anew_begins_another_conversation(tmp_path):
    again = claude("u2", None, "user", {"role": "user", "content": "fix the cost"}, 20)
    other = claude("a9", "u2", "assistant", said(text("Which?"), id="m9"), 21)
    later = claude("u3", "u1", "user", {"role": "user", "content": "please"}, 22)
    last = claude("a10", "u3", "assistant", said(text("Yes."), id="m10"), 23)
    it = recall(imported(written(tmp_path / "s.jsonl", *CLAUDE, later, last)))
    assert [m.text for m in it.others[0]] == ["fix the price", "please", "Yes."]
    assert len(it.messages) == 5
    it = recall(imported(written(tmp_path / "t.jsonl", *CLAUDE, again, other)))  # without a parent it goes on
    assert [m.text for m in it.messages][-3:] == ["Done.", "fix the cost", "Which?"]


def test_lines_that_were_written_twice_and_errors_of_the_api_are_left_out(tmp_path):
    error = claude("e1", "a5", "assistant", said(text("API Error: 529"), id="e", model="<synthetic>"), 9)
    it = recall(imported(written(tmp_path / "s.jsonl", *CLAUDE, *CLAUDE[2:], error)))
    assert [m.text for m in it.messages] == ["fix the price", "I look.", "a b", "int", "Done."]


# Codex


def codex(kind, payload, second=0.0):
    return {"timestamp": at(second), "type": kind, "payload": payload}


def item(second=0.0, **fields):
    return codex("response_item", fields, second)


def spoke(role, words, second=0.0):
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, type="message", role=role, content=[{"type": kind, "text": words}])


def tokens(total, second=0.0, **last):
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
    return codex("event_msg", {"type": "token_count", "info": info, "rate_limits": {}}, second)


CODEX = [
    codex(
        "session_meta", {"id": "t1", "cwd": "/repo", "cli_version": "0.169.0", "base_instructions": {"text": "Code."}}
    ),
    spoke("developer", "sandbox", 1),
    spoke("user", "fix it", 2),
    codex("turn_context", {"model": "gpt-5.5", "cwd": "/repo"}, 2),
    codex("event_msg", {"type": "user_message", "message": "fix it"}, 2),
    item(4, type="reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="gA"),
    item(5, type="function_call", name="shell", arguments='{"cmd":"ls"}', call_id="c1"),
    item(5.5, type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="c2"),
    tokens(10, 6, input_tokens=50, cached_input_tokens=40, output_tokens=9),
    item(7, type="custom_tool_call_output", call_id="c2", output='{"output":"ok"}'),
    item(7, type="function_call_output", call_id="c1", output="a b"),
    tokens(10, 7, input_tokens=50, cached_input_tokens=40, output_tokens=9),  # again, with other limits
    spoke("assistant", "Fixed.", 9),
    tokens(20, 9, input_tokens=70, output_tokens=3),
]


def test_a_session_of_codex(tmp_path):
    run = imported(written(tmp_path / "rollout-2026.jsonl", *CODEX))
    it = recall(run)
    assert [(m.role, m.text) for m in it.messages] == [
        ("system", "Code."),
        ("system", "sandbox"),
        ("user", "fix it"),
        ("assistant", ""),
        ("tool", "a b"),
        ("tool", '{"output":"ok"}'),
        ("assistant", "Fixed."),
    ]
    reply = it.messages[3]
    assert reply.reasoning == "hm"
    assert reply.calls == (ToolCall("c1", "shell", '{"cmd":"ls"}'), ToolCall("c2", "apply_patch", "*** Begin"))
    assert [m.usage for m in it.meters] == [Usage(50, 9, 40), Usage(70, 3)]
    assert [(m.started - T0, m.seconds) for m in it.meters] == [(2, 3.5), (7, 2)]
    assert it.model == "gpt-5.5"
    assert it.fields["codex"] == {"id": "t1", "cwd": "/repo", "cli_version": "0.169.0"}
    assert [c.kind for c in run.calls] == ["open", "ask", "act", "act", "ask", "end"]


def test_a_session_of_codex_that_was_compacted(tmp_path):
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "so far: fixed"}]}]
    compacted = codex("compacted", {"message": "", "replacement_history": [*history, {"type": "compaction"}]}, 10)
    summed = codex("compacted", {"message": "summary"}, 13)
    lines = [*CODEX, compacted, spoke("assistant", "On.", 11), summed, spoke("assistant", "Out.", 14)]
    it = recall(imported(written(tmp_path / "r.jsonl", *lines)))
    talks = [[m.text for m in talk] for talk in it.others]
    assert talks == [["Code.", "so far: fixed", "On."], ["Code.", "summary", "Out."]]


def test_an_old_session_of_codex_has_the_items_alone(tmp_path):
    lines = [
        {"id": "t0", "timestamp": at(0), "instructions": "Be kind."},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "function_call_output", "call_id": "c1", "output": {"content": "a", "success": True}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ho"}]},
    ]
    it = recall(imported(written(tmp_path / "rollout.jsonl", *lines)))
    assert [m.text for m in it.messages] == ["Be kind.", "hi", "", "a", "ho"]
    assert it.messages[2].calls[0].name == "local_shell"


# mini-swe-agent


def response(prompt, completion):
    return {"model": "deepseek-chat", "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
MINI = {
    "info": {
        "model_stats": {"instance_cost": 0.3, "api_calls": 2},
        "config": {
            "model": {"model_name": "deepseek/deepseek-chat", "model_kwargs": {"api_key": "sk-1", "top_p": 1.0}}
        },
        "exit_status": "Submitted",
    },
    "instance_id": "astropy-1",
    "messages": [
        {"role": "system", "content": "You code."},
        {"role": "user", "content": "Fix.", "extra": {"timestamp": 10.0}},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [CALL],
            "extra": {"actions": [{"command": "ls"}], "response": response(30, 4), "cost": 0.1, "timestamp": 12.5},
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a b", "extra": {"returncode": 0, "timestamp": 13.0}},
        {
            "role": "assistant",
            "content": "Done.",
            "extra": {"response": response(40, 2), "cost": 0.2, "timestamp": 14.0},
        },
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": "diff"}},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}


def test_a_trajectory_of_mini_swe_agent(tmp_path):
    (tmp_path / "astropy-1.traj.json").write_text(json.dumps(MINI, indent=2))
    run = imported(tmp_path / "astropy-1.traj.json")
    it = recall(run)
    assert [(m.role, m.text) for m in it.messages[:4]] == [
        ("system", "You code."),
        ("user", "Fix."),
        ("assistant", "I look."),
        ("tool", "a b"),
    ]
    assert (it.task_id, it.model) == ("astropy-1", "deepseek/deepseek-chat")
    assert [m.usage for m in it.meters] == [Usage(30, 4), Usage(40, 2)]
    assert run.cost == pytest.approx(0.3)
    assert [m.seconds for m in it.meters] == [2.5, 1.0]
    assert it.fields["info"]["exit_status"] == "Submitted"
    assert it.fields["info"]["config"]["model"]["model_kwargs"] == {"api_key": "(left out)", "top_p": 1.0}
    assert "sk-1" not in json.dumps(run.row)
    assert json.loads(it.messages[3].extra)["chat"]["extra"] == {"returncode": 0, "timestamp": 13.0}


# files that mean harm, or are damaged

BOTH = [("s.jsonl", CLAUDE), ("rollout.jsonl", CODEX)]


@pytest.mark.parametrize(("name", "lines"), BOTH)
@pytest.mark.parametrize(
    "broken",
    [
        '{"type": "assistant", "uuid":',
        "not json",
        "[1, 2]",
        '"text"',
        "[" * 300 + "]" * 300,
        '{"a": NaN}',
        '{"type": "assistant", "uuid": "b1", "message": {"content": [{"type": "thinking", "thinking": 7}]}}',
        '{"type": "user", "uuid": "b2", "sessionId": "s1", "message": {"role": "user", "content": {"a": 1}}}',
        '{"type": "user", "uuid": "b3", "sessionId": "s1", "message": 7}',
        '{"type": "assistant", "uuid": "b4", "message": {"content": [], "usage": {"input_tokens": "many"}}}',
        '{"type": "assistant", "uuid": "b5", "message": {"content": [{"type": "text"}]}, "costUSD": "x"}',
        '{"type": "response_item", "payload": 7}',
        '{"type": "response_item", "payload": {"type": "message", "role": "user", "content": {"a": 1}}}',
        '{"type": "response_item", "payload": {"type": "reasoning", "summary": {"a": 1}}}',
        '{"type": "response_item", "payload": {"type": "function_call_output"}}',
        '{"type": "turn_context", "payload": []}',
    ],
)
def test_a_broken_line_loses_itself_alone_and_says_so(tmp_path, name, lines, broken):
    whole = recall(imported(written(tmp_path / name, *lines)))
    store, lost = MemoryStore(), list[BadRecord]()
    path = written(tmp_path / f"b-{name}", *lines[:7], broken, *lines[7:])
    (run,) = import_file(store, path, on_bad=lost.append)
    assert recall(Run(store, run)).messages == whole.messages
    assert len(lost) <= 1
    if not broken.startswith("{") or "NaN" in broken or broken.endswith(":"):
        assert lost
    for error in lost:
        assert str(error).startswith(f"b-{name}:8: ")
        assert len(str(error)) < 400
        assert error.remedy
    assert not store.verify()


@pytest.mark.parametrize(("name", "lines"), BOTH)
def test_a_huge_line_is_passed_over(tmp_path, monkeypatch, name, lines):
    path = written(tmp_path / name, *lines[:7], '{"x": "' + "y" * 40_000 + '"}', *lines[7:], '{"z": "' + "y" * 40_000)
    monkeypatch.setattr(files, "LINE", 20_000)
    store, lost = MemoryStore(), list[BadRecord]()
    (run,) = import_file(store, path, on_bad=lost.append)
    assert [str(error).split(": ")[0] for error in lost] == [f"{name}:8", f"{name}:{len(lines) + 2}"]
    assert recall(Run(store, run)).messages == recall(imported(written(tmp_path / f"w-{name}", *lines))).messages


def test_a_log_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("clew.exchange.sessions.log_lines.LINES", 5)
    with pytest.raises(BadRecord, match="or 5 lines"):
        import_file(MemoryStore(), written(tmp_path / "s.jsonl", *CLAUDE))


@pytest.mark.parametrize(
    "lines",
    [
        [CLAUDE[2]],
        [CODEX[0], CODEX[2]],
        [{"type": "summary", "summary": "x", "leafUuid": "y"}],
    ],
)
def test_a_log_without_replies_says_so(tmp_path, lines):
    with pytest.raises(BadRecord, match="no replies"):
        import_file(MemoryStore(), written(tmp_path / "s.jsonl", *lines))


@pytest.mark.parametrize(
    "data",
    [
        {**MINI, "messages": []},
        {**MINI, "messages": 7},
        {**MINI, "messages": [7]},
        {**MINI, "messages": [{"role": 7}]},
        {**MINI, "info": {"config": {"model": 7}}},
        {**MINI, "messages": [{**MINI["messages"][2], "extra": {"cost": "free"}}]},
    ],
)
def test_a_trajectory_of_wrong_types_is_refused_in_a_sentence(tmp_path, data):
    (tmp_path / "w.traj.json").write_text(json.dumps(data))
    with pytest.raises(BadRecord) as caught:
        import_file(MemoryStore(), tmp_path / "w.traj.json")
    assert str(caught.value).startswith("w.traj.json: ")
    assert caught.value.remedy


def test_a_folder_of_logs(tmp_path):
    (tmp_path / "a" / "s1" / "subagents").mkdir(parents=True)
    logs = [written(tmp_path / "a" / "s1.jsonl", *CLAUDE), written(tmp_path / "rollout.jsonl", *CODEX)]
    written(tmp_path / "a" / "s1" / "subagents" / "agent-1.jsonl", *CLAUDE)
    written(tmp_path / "a" / "other.jsonl", {"messages": []})
    (tmp_path / "notes.txt").write_text("x")
    assert files_in(tmp_path) == sorted(logs)
    with pytest.raises(BadInput, match="nothing below"):
        files_in(tmp_path / "a" / "s1")


def test_uuids_that_run_in_a_circle_end(tmp_path):
    lines = [claude("u1", "a1", "user", {"role": "user", "content": "a"}, isSidechain=True)]
    lines += [claude("a1", "u1", "assistant", said(text("b")), isSidechain=True)]
    assert [m.text for m in recall(imported(written(tmp_path / "s.jsonl", *lines))).messages] == ["a", "b"]


def test_times_and_order():
    assert seconds("2026-01-01T10:00:00Z") == T0
    assert seconds(T0 * 1000) == T0
    assert [seconds(x) for x in ("", "never", None, True, -1, 1e300, float("nan"), [])] == [0.0] * 8
    calls = (ToolCall("a", "f", ""), ToolCall("b", "f", ""))
    talk = [Message("assistant", "", calls=calls), Message("user", "x"), Message("tool", "2", call_id="b")]
    talk.append(Message("tool", "1", call_id="a"))
    assert [m.text for m in in_order(talk)] == ["", "1", "2", "x"]
