"""Runs inside the sandbox: every variant of a function on recorded and fuzzed inputs, each in a process of its own.

Reads a JSON object from stdin: ``variants`` (sources, the first is right), ``call`` (an expression over ``a``, ``b``
and ``c`` that a module's namespace evaluates), ``inputs`` (lists of literals as text) or ``test`` (HumanEval's, whose
inputs are recorded from the right variant), ``entry``, ``seed``. Writes the inputs used and each variant's outcomes:
digests of results, ``!Error`` for exceptions, ``T`` where its time was over.
"""

import ast
import copy
import hashlib
import json
import os
import random
import resource
import signal
import sys

SECONDS = 0.4  # of CPU, for one variant on all inputs
SMOKE, FUZZED, RECORDED = 6, 25, 40


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(rounded, value)]
    if isinstance(value, dict):
        return {repr(k): rounded(v) for k, v in value.items()}
    return value


def perturbed(value, rng):
    """A value of the same type, a little different."""
    if isinstance(value, bool):
        return rng.random() < 0.5
    if isinstance(value, int):
        return rng.choice([value, value + 1, value - 1, 0, 1, rng.randint(-9, 30), abs(value) * 2])
    if isinstance(value, float):
        return rng.choice([value, value + 1, value / 2, -value, 0.0, round(rng.uniform(-9, 9), 2)])
    if isinstance(value, (str, bytes)):
        items = [value[i : i + 1] for i in range(len(value))]
        join = value[:0].join
        if items and rng.random() < 0.8:
            i, j = rng.randrange(len(items)), rng.randrange(len(items))
            change = rng.randrange(4)
            if change == 0:
                items[i], items[j] = items[j], items[i]
            elif change == 1:
                del items[i]
            elif change == 2:
                items.insert(i, items[j])
            else:
                rng.shuffle(items)
        return join(items)
    if isinstance(value, (list, tuple)):
        items = [perturbed(v, rng) if rng.random() < 0.4 else v for v in value]
        change = rng.randrange(5)
        if items and change == 0:
            del items[rng.randrange(len(items))]
        elif items and change == 1:
            items.append(rng.choice(items))
        elif change == 2:
            rng.shuffle(items)
        return type(value)(items)
    if isinstance(value, dict):
        return {k: perturbed(v, rng) for k, v in value.items()}
    return value


def namespace(source):
    names = {"__name__": "module"}
    exec(compile(source, "module.py", "exec"), names)
    return names


def outcome(names, code, arguments):
    given = copy.deepcopy(arguments)
    try:
        result = eval(code, names, dict(zip("abc", given, strict=False)))
        said = repr((rounded(result), rounded(list(given))))
    except Exception as error:
        return f"!{type(error).__name__}"
    return hashlib.sha256(said.encode(errors="replace")).hexdigest()[:12]


def recorded(names, entry, test):
    """The inputs on which a HumanEval test calls the right variant, in order, each once."""
    found = []

    def candidate(*arguments):
        text = repr(list(arguments))
        if text not in found:
            found.append(text)
        return names[entry](*arguments)

    scope = dict(names)
    exec(compile(test, "test.py", "exec"), scope)
    random.seed(0)
    scope["check"](candidate)
    return found


def kept(texts):
    out = []
    for text in texts:
        try:
            ast.literal_eval(text)
            out.append(text)
        except (ValueError, SyntaxError, MemoryError):
            continue
    return out


def apart(work):
    """What ``work(write)`` wrote, a JSON value a line, in a child that has SECONDS of CPU time."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        resource.setrlimit(resource.RLIMIT_CPU, (3, 3))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            work(lambda value: os.write(write, (json.dumps(value) + "\n").encode()))
        except BaseException as error:
            os.write(write, (json.dumps(f"!{type(error).__name__}") + "\n").encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as lines:
        text = lines.read()
    os.waitpid(child, 0)
    return [json.loads(line) for line in text.splitlines()]


def main():
    job = json.load(sys.stdin)
    right, code = job["variants"][0], compile(job["call"], "call", "eval")
    sys.setrecursionlimit(400)
    if "test" in job:
        seeds = apart(lambda write: [write(t) for t in recorded(namespace(right), job["entry"], job["test"])])
    else:
        seeds = job["inputs"]
    seeds = kept(seeds)[:RECORDED]
    rng = random.Random(job["seed"])
    tries = []
    for _ in range(400):
        text = repr(perturbed(ast.literal_eval(rng.choice(seeds)), rng)) if seeds else "[]"
        if text not in tries and text not in seeds and len(text) < 2000:
            tries.append(text)
    tries = kept(tries)[: 4 * FUZZED]

    def runs(source, inputs):
        def work(write):
            names = namespace(source)
            for text in inputs:
                write(outcome(names, code, ast.literal_eval(text)))

        got = apart(work)
        return got + ["T"] * (len(inputs) - len(got))

    wanted = runs(right, seeds + tries)
    again = runs(right, seeds + tries)
    pairs = [(t, w) for t, w, z in zip(seeds + tries, wanted, again, strict=True) if w == z and w != "T"]
    tests = [(t, w) for t, w in pairs if t in seeds]
    fuzz = [(t, w) for t, w in pairs if t not in seeds and not w.startswith("!")][:FUZZED]
    inputs = [t for t, _ in fuzz[:SMOKE]] + [t for t, _ in tests] + [t for t, _ in fuzz[SMOKE:]]
    wanted = [w for _, w in fuzz[:SMOKE]] + [w for _, w in tests] + [w for _, w in fuzz[SMOKE:]]
    results = [runs(source, inputs) for source in job["variants"]]
    json.dump({"smoke": len(fuzz[:SMOKE]), "tests": len(tests), "wanted": wanted, "results": results}, sys.stdout)


main()
