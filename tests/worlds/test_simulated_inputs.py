"""What a simulated world is given: tools in three forms, recorded runs; its detectors on planted and clean cases."""

from __future__ import annotations

import json
import random

import pytest

from clew.core.errors import BadInput
from clew.core.stats import deviate, wilson
from clew.core.values import ToolCall
from clew.methods.world_model.answer_cache import AnswerCache
from clew.methods.world_model.demonstrations import demonstrations_of, shown
from clew.methods.world_model.fidelity import Monitor, canonical_text
from clew.methods.world_model.instruction import Instruction
from clew.methods.world_model.leaks import Guard, leaks
from clew.methods.world_model.service_faults import fate, in_part, page
from clew.methods.world_model.simulated_world import misfit
from clew.methods.world_model.tool_files import tools_of_data, tools_of_file, wire_of

PETS = {
    "openapi": "3.0.3",
    "paths": {
        "/pets": {
            "get": {
                "operationId": "listPets", "summary": "All pets.",
                "parameters": [{"$ref": "#/components/parameters/limit"},
                               {"name": "X-Trace", "in": "header", "schema": {"type": "string"}}],
                "responses": {"200": {"content": {"application/json": {"schema": {
                    "type": "array", "items": {"$ref": "#/components/schemas/Pet"}}}}}},
            },
            "post": {"requestBody": {"required": True, "content": {"application/json": {
                "schema": {"$ref": "#/components/schemas/Pet"}}}}, "responses": {"204": {"description": "ok"}}},
        },
        "/pets/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
            "delete": {"operationId": "drop.pet", "responses": {}},
            "get": {"operationId": "broken", "parameters": [{"$ref": "#/components/parameters/none"}]},
        },
    },
    "components": {
        "parameters": {"limit": {"name": "limit", "in": "query", "schema": {"type": "integer"}}},
        "schemas": {"Pet": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "example": "Rex"}, "example": {"type": "string", "nullable": True},
            "children": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}}}}},
    },
}  # fmt: skip


def test_an_openapi_document_gives_its_operations_with_arguments_and_answers():
    with pytest.warns(UserWarning, match="'broken' refers to"):
        offers = {one.spec.name: one for one in tools_of_data(PETS)}
    assert list(offers) == ["listPets", "post_pets", "drop_pet"]
    assert list(offers["listPets"].spec.schema["properties"]) == ["limit"]
    assert offers["drop_pet"].spec.schema["required"] == ["id"]
    post = offers["post_pets"].spec.schema
    assert post["required"] == ["name"]
    assert post["properties"]["example"]["type"] == ["string", "null"]
    assert offers["listPets"].spec.description == "GET /pets. All pets."
    answers = offers["listPets"].answers
    assert answers is not None
    assert misfit(answers, '[{"name": "Rex", "children": [{"name": "Max"}]}]') == ""
    assert "lacks" in misfit(answers, '[{"children": []}]')
    assert offers["post_pets"].answers is None


def test_an_openapi_document_in_yaml_is_the_same(tmp_path):
    yaml = pytest.importorskip("yaml", reason="did not run: pyyaml is not installed")
    for name, text in (("a.yaml", yaml.safe_dump(PETS)), ("a.json", json.dumps(PETS))):
        (tmp_path / name).write_text(text)
    with pytest.warns(UserWarning, match="left out"):
        assert tools_of_file(str(tmp_path / "a.yaml")) == tools_of_file(str(tmp_path / "a.json"))
    with pytest.warns(UserWarning, match="left out"):
        assert [o.spec.name for o in tools_of_file(f"{tmp_path}/a.json#drop_pet")] == ["drop_pet"]


def test_the_list_of_an_mcp_server_and_tools_of_openai_load_as_they_come():
    listed = {"tools": [{"name": "files/read", "description": "Read.", "inputSchema": {"type": "object"},
                         "outputSchema": {"type": "object", "required": ["text"]}}]}  # fmt: skip
    offer = tools_of_data({"jsonrpc": "2.0", "id": 1, "result": listed})[0]
    assert offer.spec.name == "files_read"
    assert offer.answers == {"type": "object", "required": ["text"]}
    assert tools_of_data([wire_of(offer.spec)])[0].spec == offer.spec


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (3, "no list of tools"),
        ([], "no tool that a model can be offered"),
        ([{"a": 1}], "something that is no tool"),
        ({"paths": {}}, "no tool that a model"),
        ([{"name": "x", "parameters": {"type": "array"}}], "no tool that a model"),
    ],
)
@pytest.mark.filterwarnings("ignore:a tool of")
def test_what_holds_no_tools_is_refused(data, told):
    with pytest.raises(BadInput, match=told):
        tools_of_data(data)


def test_a_hostile_document_ends_in_bounded_time():
    deep = {f"s{i}": {"anyOf": [{"$ref": f"#/components/schemas/s{i + 1}"}] * 2} for i in range(60)}
    document = {"components": {"schemas": deep | {"s60": {"type": "string"}}}, "paths": {"/a": {"get": {
        "parameters": [{"name": "q", "in": "query", "schema": {"$ref": "#/components/schemas/s0"}}]}}}}  # fmt: skip
    with pytest.warns(UserWarning, match="left out"), pytest.raises(BadInput, match="no tool that a model"):
        tools_of_data(document)


def test_recorded_runs_become_turns_of_calls_or_of_words(tmp_path):
    call = {"id": "c1", "type": "function", "function": {"name": "order", "arguments": '{"id": 1}'}}
    tools = [{"role": "system", "content": "s"}, {"role": "user", "content": "Do it."},
             {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "sent"},
             {"role": "assistant", "content": "done"}]  # fmt: skip
    words = [{"role": "user", "content": "a hall"}, {"role": "assistant", "content": "east"},
             {"role": "user", "content": [{"type": "text", "text": "a room"}]},
             {"role": "assistant", "content": "bye"}]  # fmt: skip
    silent = [{"role": "user", "content": "a hall"}, {"role": "assistant", "content": "east"}]
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(json.dumps({"messages": m}) for m in (tools, words, silent)))
    one, two = demonstrations_of(path)
    assert (one.task, one.turns[0].action, one.turns[0].observation) == (
        "Do it.", ToolCall("c1", "order", '{"id": 1}'), "sent",
    )  # fmt: skip
    assert [(t.action, t.observation) for t in two.turns] == [("east", "a room")]
    assert [len(d.turns) for d in shown([one, two], 2, room=4)] == [1, 1]
    path.write_text(json.dumps(silent))
    with pytest.raises(BadInput, match="holds an observation"):
        demonstrations_of(path)
    path.write_text("{")
    with pytest.raises(BadInput, match="is no JSON"):
        demonstrations_of(path)


# ---- detectors: each on 200 planted and 200 clean cases ------------------------------------------------------------

N = 200
NAMES = ["Mabel", "Otto", "Finch", "Ingrid", "Pavel", "Sato", "Quill", "Norra", "Tove", "Bram", "Lark", "Wren"]
FILLER = [
    "the",
    "book",
    "was",
    "found",
    "in",
    "a",
    "small",
    "town",
    "and",
    "nobody",
    "knows",
    "who",
    "it",
    "was",
    "that",
    "came",
    "there",
    "first",
]


def at_least(hits: int, bound: float) -> bool:
    """Whether the lower end of the 95 % interval of ``hits`` in N is above a bound."""
    return wilson(float(hits), float(N), deviate(0.95))[0] > bound


def texts(rng: random.Random, planted: str) -> str:
    words = [rng.choice([*FILLER, *NAMES]) for _ in range(60)]
    at = rng.randrange(60)
    return " ".join([*words[:at], *([planted] if planted else []), *words[at:]])


def test_the_leak_detector_finds_planted_answers_and_passes_clean_texts():
    rng = random.Random(0)
    caught = clean = opened = 0
    for _ in range(N):
        answer = " ".join(rng.sample(NAMES, 3))
        written = rng.choice([answer, answer.upper(), answer.replace(" ", "  "), f"({answer}),"])
        caught += leaks(answer, [("search x", texts(rng, written))]) == [0]
        clean += leaks(answer, [("search x", texts(rng, ""))]) == []
        opened += leaks(answer, [("open 3", texts(rng, written)), ("look", answer)], ["open"]) == []
    assert at_least(caught, 0.97)
    assert at_least(clean, 0.97)
    assert at_least(opened, 0.97)


def test_a_guard_holds_no_word_of_the_answer_and_masks_all_of_it():
    guard = Guard("Mabel Otto Finch the younger", "task-1")
    assert guard.masked("By Mabel Otto Finch the younger, 1911.") == "By …, 1911."
    assert "Mabel" not in repr([getattr(guard, name) for name in guard.__slots__])
    assert Guard("no", "task-1").spans("no no no") == []
    assert leaks("Bergen", [("search Bergen", "Bergen")]) == [], "the agent said it first"
    assert leaks("Bergen", [("look", "Bergen")], prompt="Is it Bergen?") == []


def test_the_schema_validator_finds_planted_misfits_and_passes_answers_that_fit():
    schema = {"type": "object", "required": ["id", "state"], "properties": {
        "id": {"type": "integer"}, "state": {"enum": ["new", "sent"]},
        "lines": {"type": "array", "items": {"type": "string"}}}}  # fmt: skip
    rng, caught, clean = random.Random(1), 0, 0
    for i in range(N):
        good = {"id": i, "state": rng.choice(["new", "sent"]), "lines": ["a"] * rng.randrange(3)}
        bad = rng.choice([
            {**good, "id": str(i)}, {**good, "state": "lost"}, {**good, "lines": [1]}, {"id": i}, [good], None,
        ])  # fmt: skip
        clean += misfit(schema, json.dumps(good)) == ""
        caught += bool(misfit(schema, rng.choice([json.dumps(bad), json.dumps(good)[:-1], f"Here it is: {good}"])))
    assert at_least(caught, 0.97)
    assert at_least(clean, 0.97)


def test_the_fidelity_monitor_falls_below_its_bound_and_rarely_above_it():
    rng = random.Random(2)
    fallen = false = 0
    for _ in range(N):
        low, high = Monitor(0.8), Monitor(0.8)
        for _ in range(120):
            low.add(sum(rng.random() < 0.5 for _ in range(6)) / 6)
            high.add(sum(rng.random() < 0.8 for _ in range(6)) / 6)  # the bound itself: the hardest case
            false += high.fallen
            if high.fallen:
                break
        fallen += low.fallen
    assert at_least(fallen, 0.97)
    assert at_least(N - false, 0.95)
    assert "n=120 runs" in str(low)


def test_the_cache_keeps_the_first_answer_of_a_key_and_has_bounds():
    cache = AnswerCache(most=3, room=10)
    for key, answer in ((b"a", "one"), (b"a", "two"), (b"b", "xx")):
        cache.put(key, answer)
    assert (cache.get(b"a"), len(cache)) == ("one", 2)
    cache.put(b"c", "12345")
    assert (cache.get(b"b"), len(cache)) == ("xx", 3), "ten characters fit"
    cache.put(b"d", "z")
    assert (cache.get(b"a"), len(cache)) == (None, 3), "what was not used for longest goes first"
    cache.put(b"e", "x" * 11)
    assert len(cache) == 0


def test_faults_come_by_the_seed_alone_and_pages_are_the_list():
    wish = Instruction(fail_rate=0.2, partial=0.1, latency=0.5)
    fates = [fate(wish, seed) for seed in range(2000)]
    assert fates == [fate(wish, seed) for seed in range(2000)]
    assert 0.17 < sum(f.refused for f in fates) / 2000 < 0.23
    assert 0.08 < sum(f.partial for f in fates) / 2000 < 0.12
    assert 0.45 < sum(f.seconds for f in fates) / 2000 < 0.55
    assert fate(Instruction(), 5)[:2] == (False, False)
    assert page('{"a": [1, 2, 3], "n": 3}', 2, 0, "c") == (
        '{"a": [1, 2], "n": 3, "remaining": 1, "next_cursor": "c"}',
        True,
    )
    assert page("plain", 2) == ("plain", False)
    assert in_part("done", 0).startswith("error: 504")
    assert canonical_text('{"b": 1, "a": [2]}') == canonical_text('{"a":[2],"b":1}')
    assert canonical_text("a\n  b") == "a b"
