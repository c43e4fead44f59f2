"""Training rows: runs and their annotations become LossRows of tokens, masks and weights.

The training loop calls this. A sampled token is trained once, with the logprob it was sampled with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeGuard, cast

import numpy as np

from clew.core import registry
from clew.core.errors import BadInput, UnknownName
from clew.core.protocols import Renderer, Scores
from clew.core.reading import Record, Runs
from clew.core.records import Annotation, Call, Cursor, LossRow, Node
from clew.core.values import F32, Message, Sampling
from clew.harness.run.asks import of_run
from clew.models.fleet.spans import spans_of
from clew.models.kept import ScoresKept, truncates
from clew.models.shaping import shape_of
from clew.models.taps.forms import forms_of
from clew.store.paths import Span, leaves

Ask = tuple[str, int]  # (run that issued it, seq)


class Annotated(Protocol):
    """What a credit method hands back."""

    def annotations(self) -> Sequence[Annotation]: ...


def rows(
    groups: Iterable[Runs],
    credit: str | Annotated | Mapping[Ask, float],
    component: str = "pg",
    *,
    also: Mapping[str, float] | None = None,
    model: str = "",
) -> list[LossRow]:
    """One row per leaf path of each run; each sampled span trains once, in the first row that contains it.

    Only what the run's own model said trains. What an agent asks of models that it names, as ``orchestrator`` asks its
    workers, gives no row, not even where such a model has the same weights.

    Args:
        groups: Groups, a Group, or runs.
        credit: name of a method whose annotations the store holds, what a credit method handed back, or a mapping from
            (run, seq) of an ask to its weight. An ask without a value trains nothing and enters no count: absent is not
            zero. Values per token (target ``tokens``) count from the reply's node, head included.
        component: the weight stream to fill.
        also: further streams of one constant weight on the same tokens, for instance ``{"kl": 0.01}``.
        model: take the replies of the model of this ref instead, for a training of several policies that the agent
            names.

    Returns:
        No row where nothing has a value, as where in every group all runs were rewarded alike: there is nothing to
        learn, and `clew train` takes no step. A warning says so of a method that is named.

    Raises:
        BadInput: a method named left no values here though rewards differ, or values of several parameter sets; a run
            has no token ids; a span was sampled greedily, or from a truncated distribution of which the record does not
            say what it left.
    """
    out: list[LossRow] = []
    taken: set[Ask] = set()
    listed = list(_runs(groups))
    value_in = _values(listed, credit)
    for run in listed:
        value = value_in(run)
        for path, spans in leaves(run, own(run, model)):
            fresh = [(s, value(s.call)) for s in spans if (s.call.run, s.call.seq) not in taken]
            found = [(s, v) for s, v in fresh if v is not None]
            taken.update((s.call.run, s.call.seq) for s, _ in fresh)
            if found:
                out.append(replace(_policy_row(run.id, path, found, component, also or {}), run=origin(run)))
    if not out and isinstance(credit, str):
        if (alike := _alike(listed)) and credit in registry.names("credits"):
            warnings.warn(
                f"in all {alike} groups the runs were rewarded alike, so that {credit!r} values no ask and there is "
                "nothing to train on: take tasks that the model sometimes solves, or more runs of each",
                stacklevel=2,
            )
            return out
        raise BadInput(
            f"method {credit!r} values no ask of these {len(listed)} runs",
            remedy=f"Annotate them first: clew.credit.{credit}(groups). Groups rewarded all alike get no values.",
        )
    return out


def own(run: Record, model: str = "") -> Callable[[Call], bool]:
    """Which asks of a run count: those put to the run's own model, or those that the model of this ref answered."""
    if model:
        return lambda call: call.setup is not None and call.setup.model == model
    edits = [edit for edit in run.changes.edits if edit.kind == "tap"]

    def put_to_it(call: Call) -> bool:
        held = [edit for edit in edits if edit.seq <= call.seq]
        return of_run(call, forms_of(held[-1].value) if held else ())

    return put_to_it


def _alike(runs: Sequence[Record]) -> int:
    """How many groups these runs make, where rewards are known and differ in none of them; else 0."""
    rewards: dict[str, set[float]] = {}
    for run in runs:
        if run.group and run.reward is not None:
            rewards.setdefault(run.group, set()).add(run.reward)
    return len(rewards) if all(len(found) == 1 for found in rewards.values()) else 0


def origin(run: Record) -> str:
    """The id of the run that this one was forked or spawned from, directly or through others; its own where neither.

    Losses that weigh by run count that run once, with all that its forks and sub-agents said.
    """
    row, seen = run.row, {run.id}
    while above := row.spawned_by or row.parent:
        name = Cursor.parse(above).run
        if name in seen:
            break  # no store of ours holds a circle; a file from elsewhere could
        seen.add(name)
        try:
            row = run.store.row(name)
        except UnknownName:
            return name  # it was not carried over with its fork
    return row.id


def _policy_row(
    run: str, path: Sequence[Node], found: Sequence[tuple[Span, float | F32]], component: str, also: Mapping[str, float]
) -> LossRow:
    ids = _ids(path)
    n = len(ids)
    sampled, weight, old = np.zeros(n, bool), np.zeros(n, np.float32), np.full(n, np.nan, np.float32)
    source, heats, held, kept = [], set(), [], []
    made = np.full(n, -1, np.int32)  # by which version of the weights
    for (call, start, stop), value in found:
        if start == stop or call.logprobs is None:
            continue  # wholly forced: nothing was chosen
        per_token = (
            np.full(stop - start, value, np.float32) if np.isscalar(value) else np.asarray(value)[start - stop :]
        )
        present = ~np.isnan(per_token)
        sampled[start:stop] = present
        weight[start:stop] = np.where(present, per_token, 0)
        old[start:stop] = np.where(present, call.logprobs, np.nan)
        source.append((start, Cursor(call.run, call.seq, call.forced)))
        heats.add(_temperature(call))
        grammar = _sampling(call).grammar
        if call.kept and (grammar or truncates(_sampling(call))):
            kept.append((start, stop, call.kept))
        elif grammar:
            held.append((start - call.forced, stop, grammar))
        for version, first, last in spans_of(call):
            made[start + first : start + last] = version
    if len(heats) > 1:
        raise BadInput(f"run {run} mixes temperatures {sorted(heats)} on one path", remedy="Ask with one temperature.")
    weights = {component: weight} | {name: np.where(sampled, np.float32(w), np.float32(0)) for name, w in also.items()}
    heat, versions = heats.pop() if heats else 1.0, sorted({*made[made >= 0].tolist()}) or [0]
    mixed = made if len(versions) > 1 else None
    row = LossRow(
        ids, sampled, weights, old, source=source, version=versions[0], temperature=heat, held=held, kept=kept
    )
    return replace(row, versions=mixed)


def _temperature(call: Call) -> float:
    sampling = _sampling(call)
    if shape_of(sampling.shape).bends:
        raise BadInput(
            f"sampled with {sampling.shape[:200]}, which bends the model's law: a trainer cannot compute it again",
            remedy="Collect without penalties and biases (min_p and the like train); or use sft_rows.",
            at=f"{call.run}@{call.seq}",
        )
    if sampling.temperature <= 0 or (truncates(sampling) and not call.kept):
        raise BadInput(
            f"sampled with temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, top_k {sampling.top_k}: "
            "a truncated distribution, whose logprobs a trainer cannot recompute, as the record does not say which "
            "tokens were left",
            remedy="Collect with temperature > 0 from local weights, which note them, or with top_p=1, top_k=0; or use "
            "sft_rows.",
            at=f"{call.run}@{call.seq}",
        )
    return sampling.temperature


def _sampling(call: Call) -> Sampling:
    return (call.setup and (call.setup.in_force or call.setup.asked)) or Sampling(temperature=1.0)


def _ids(path: Sequence[Node]) -> np.ndarray:
    return np.fromiter((token for node in path for token in node.ids or ()), np.int32)


def _runs(groups: Iterable[Runs]) -> Iterator[Record]:
    for item in groups:
        if isinstance(item, Iterable):
            yield from _runs(item)
        else:
            yield item


Value = Callable[[Call], float | F32 | None]


def _values(runs: Sequence[Record], credit: str | Annotated | Mapping[Ask, float]) -> Callable[[Record], Value]:
    """The function from a run to the function from an ask to its value there."""
    if isinstance(credit, Mapping):
        return lambda run: lambda call: credit.get((call.run, call.seq))
    if isinstance(credit, str):
        wanted = {run.id for run in runs} | {s.run for run in runs for s in run.row.lineage}
        store = runs[0].store if runs else None
        found: Sequence[Annotation] = store.annotations(sorted(wanted), credit) if store else []
        _single(credit, found)
    else:
        found = credit.annotations()
    table: dict[Ask, dict[str, float | F32]] = {}
    for a in found:
        value = a.values if a.target == "tokens" else a.value
        if a.target in ("call", "tokens") and value is not None:
            table.setdefault((a.run, a.seq), {})[a.scope] = value

    def of(run: Record) -> Value:
        def value(call: Call) -> float | F32 | None:
            scopes = table.get((call.run, call.seq), {})
            for scope in (run.group, run.id, ""):
                if scope in scopes:
                    return scopes[scope]
            if len(scopes) > 1:
                raise BadInput(
                    f"ask {call.run}@{call.seq} has values from {len(scopes)} groups, none of them the run's own",
                    remedy="Pass what the credit method handed back instead of its name.",
                )
            return next(iter(scopes.values()), None)

        return value

    return of


def _single(method: str, found: Sequence[Annotation]) -> None:
    kinds = {(a.version, a.params) for a in found}
    if len(kinds) > 1:
        raise BadInput(
            f"{method!r} was computed with {len(kinds)} sets of parameters on these runs",
            remedy="Pass what the credit method handed back instead of its name.",
        )


def sft_rows(
    data: Iterable[Runs | Sequence[Message]],
    renderer: Renderer | None = None,
    *,
    observation_weight: float = 0.2,
    component: str = "sft",
) -> list[LossRow]:
    """Supervised rows: the assistant's tokens weigh 1, all others ``observation_weight``.

    Args:
        data: runs or groups (each leaf path of the run's own model is a row; forced replies count too), or
            conversations as sequences of Messages, which ``renderer`` turns into exactly the ids that a run of them
            would have.
        renderer: needed for conversations.
    """
    out = []
    for item in data:
        if not _is_conversation(item):
            for run in _runs([cast(Runs, item)]):
                paths = leaves(run, own(run))
                made = [_sft_row(_spans(path), observation_weight, component) for path, _ in paths]
                out += [replace(row, run=origin(run)) for row in made]
        elif renderer is None:
            raise BadInput("conversations need a renderer", remedy="Pass renderer=model.renderer.")
        else:
            out.append(_sft_row(render(item, renderer), observation_weight, component))
    return out


def _is_conversation(item: Runs | Sequence[Message]) -> TypeGuard[Sequence[Message]]:
    return isinstance(item, Sequence) and all(isinstance(one, Message) for one in item[:1])


def render(messages: Sequence[Message], renderer: Renderer) -> list[tuple[tuple[int, ...], bool]]:
    """A conversation as (ids, assistant's own) pieces: exactly the ids a run of these messages would have."""
    pieces: list[tuple[tuple[int, ...], bool]] = []
    previous, closed = None, True
    for message in messages:
        ids = renderer.delta(previous, closed, message, ())
        if message.role == "assistant":
            head, reply = (
                renderer.head(),
                (*renderer.encode(message.text), *(t for t in ids[-1:] if t in renderer.stop)),
            )
            ids = (*head, *reply)
            pieces += [(head, False), (reply, True)]
        else:
            pieces.append((ids, False))
        previous = Node(b"", b"", message, ids, renderer.ref, b"")
        closed = True
    return pieces


def _spans(path: Sequence[Node]) -> list[tuple[tuple[int, ...], bool]]:
    return [(node.ids or (), node.message.role == "assistant") for node in path]


def _sft_row(pieces: Sequence[tuple[tuple[int, ...], bool]], observation_weight: float, component: str) -> LossRow:
    ids = np.fromiter((token for piece, _ in pieces for token in piece), np.int32)
    weight = np.repeat(
        np.array([1.0 if own else observation_weight for _, own in pieces], np.float32),
        [len(piece) for piece, _ in pieces],
    )
    return LossRow(ids, np.zeros(len(ids), bool), {component: weight}, np.full(len(ids), np.nan, np.float32))


def reference(rows: Sequence[LossRow], model: Scores) -> Sequence[LossRow]:
    """Fill ``ref`` with the logprobs a reference policy gives the rows' tokens; the first token has none (0).

    Where truncation cut the law, the reference's law over the tokens that were left.

    Raises:
        BadInput: rows were held to a grammar, of which a reference knows nothing; or their law was cut, and the
            reference cannot score what was left.
    """
    if any(row.held for row in rows):
        told = "a penalty towards a reference, of replies that were held to a grammar"
        raise BadInput(told, remedy="Leave out the grammar, or the penalty (kl).")
    for heat in sorted({row.temperature for row in rows}):
        mine = [row for row in rows if row.temperature == heat]
        ids, cut = [row.ids.tolist() for row in mine], [row.kept for row in mine]
        if any(cut) and not isinstance(model, ScoresKept):
            told = "a penalty towards a reference that cannot score what top_p and top_k left"
            raise BadInput(told, remedy="Take local weights as the reference, or leave out the penalty (kl).")
        found = (
            model.score_kept(ids, heat, cut) if any(cut) and isinstance(model, ScoresKept) else model.score(ids, heat)
        )
        for row, scores in zip(mine, found, strict=True):
            row.ref = np.concatenate([np.zeros(1, np.float32), scores]).astype(np.float32)
    return rows
