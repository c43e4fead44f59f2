"""Runs inside the sandbox: every candidate of a HumanEval problem on the first, the first half, the last and all of
its test's asserts, each in a process of its own.

Reads a JSON object from stdin: ``candidates`` (sources), ``test``, ``entry``. Writes for each candidate its verdicts as
0 or 1, ``y`` the whole test's. A statement of ``check`` that holds an assert counts as one assert, loops too; all other
statements are kept.
"""

import ast
import json
import os
import resource
import shutil
import subprocess
import sys

SECONDS = 3  # of CPU, for one candidate on one part of the test


def parts(test):
    """The test with the first assert alone, with the first half (rounded up), the last, and all."""
    tree = ast.parse(test)
    check = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "check")
    body = check.body
    places = [i for i, s in enumerate(body) if any(isinstance(n, ast.Assert) for n in ast.walk(s))]
    chosen = {"first": places[:1], "half": places[: (len(places) + 1) // 2], "last": places[-1:], "y": places}
    out = {}
    for name, keep in chosen.items():
        check.body = [s for i, s in enumerate(body) if i not in places or i in keep]
        out[name] = ast.unparse(tree)
    return out


def passes(source, test, entry):
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        code = 1
        try:
            names = {"__name__": "candidate"}
            exec(compile(source, "candidate.py", "exec"), names)
            exec(compile(test, "test.py", "exec"), names)
            names["check"](names[entry])
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def parses(source):
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def clean(source):
    """Whether ruff finds neither an undefined nor an unused name."""
    line = [shutil.which("ruff"), "check", "-q", "--isolated", "--no-cache", "--select", "F,E9", "-"]
    return subprocess.run(line, input=source.encode(), capture_output=True, check=False).returncode == 0


def main():
    job = json.load(sys.stdin)
    tests, found = parts(job["test"]), []
    for source in job["candidates"]:
        said = {"compiles": parses(source), "lint": clean(source)}
        said |= {name: passes(source, test, job["entry"]) for name, test in tests.items()}
        found.append({name: int(value) for name, value in said.items()})
    json.dump(found, sys.stdout)


main()
