"""Runs inside the sandbox: tests of a module with other sources in its place, each in a process of its own.

Reads JSON from standard input: ``module``, ``jobs`` (each ``source`` and ``test``, a test id or empty for all of them),
``trace`` (files whose lines are traced, by module name). Writes one JSON line per job: outcomes by test id
(empty: passed, else the error), None where the module could not be tried; and lines covered by test.
"""

import gc
import importlib
import io
import json
import os
import signal
import sys
import types
import unittest

CPU, WALL = (1.0, 6.0), 60  # seconds of a child: CPU for one test, for all of them; and on the clock


class Outcomes(unittest.TestResult):
    """Every test's error in a line, and the lines it executed."""

    def __init__(self, traced):
        super().__init__()
        self.said, self.covered, self.traced, self.now = {}, {}, traced, None

    def startTest(self, test):
        super().startTest(test)
        self.said[test.id()] = ""
        if self.traced:
            self.now = self.covered.setdefault(test.id(), set())
            sys.settrace(self.calls)

    def stopTest(self, test):
        sys.settrace(None)
        super().stopTest(test)

    def calls(self, frame, event, arg):
        name = self.traced.get(frame.f_code.co_filename)
        return self.lines if name else None

    def lines(self, frame, event, arg):
        if event == "line":
            self.now.add((self.traced[frame.f_code.co_filename], frame.f_lineno))
        return self.lines

    def failed(self, test, error):
        sys.settrace(None)
        self.said[test.id()] = f"{error[0].__name__}: {error[1]}"[:2000]

    def addError(self, test, error):
        self.failed(test, error)

    def addFailure(self, test, error):
        self.failed(test, error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.failed(test, error)


def attempt(module, source, test, traced):
    made = types.ModuleType(module)
    made.__file__ = f"/package/{module}.py"
    sys.modules[module] = made
    exec(compile(source, made.__file__, "exec"), made.__dict__)
    loader = unittest.defaultTestLoader
    name = f"test.test_{module}"
    importlib.import_module(name)
    suite = loader.loadTestsFromName(test) if test else loader.loadTestsFromName(name)
    outcomes = Outcomes(traced)
    suite.run(outcomes)
    covered = {t: sorted(lines) for t, lines in outcomes.covered.items()}
    return {"outcomes": outcomes.said, "covered": covered}


def child(order, job, writer):
    signal.setitimer(signal.ITIMER_PROF, CPU[not job["test"]])
    signal.alarm(WALL)
    sys.stdout = sys.stderr = io.StringIO()
    traced = {path: name for name, path in order.get("trace", {}).items()}
    if traced:
        traced[f"/package/{order['module']}.py"] = order["module"]
    try:
        found = attempt(order["module"], job["source"], job["test"], traced)
    except BaseException as error:
        found = {"outcomes": None, "error": f"{type(error).__name__}: {error}"[:300]}
    with os.fdopen(writer, "w") as stream:
        json.dump(found, stream)
    os._exit(0)


def main():
    order = json.load(sys.stdin)
    importlib.import_module("test.support")
    gc.freeze()
    for job in order["jobs"]:
        reader, writer = os.pipe()
        process = os.fork()
        if not process:
            os.close(reader)
            child(order, job, writer)
        os.close(writer)
        with os.fdopen(reader) as stream:
            told = stream.read()
        os.waitpid(process, 0)
        sys.stdout.write((told or '{"outcomes": null, "error": "timeout"}') + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
