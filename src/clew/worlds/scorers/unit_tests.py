"""The scorer ``unit_tests``: Python that a model wrote, run against tests, in the sandbox and nowhere else."""

from __future__ import annotations

import json
import re
import secrets

from clew.core.errors import BadInput
from clew.sandbox.sandbox import Limits, Sandbox

FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
LONGEST = 200_000  # characters of code
DRIVER = """
import json, sys
order = json.loads(sys.stdin.read())
space = {"__name__": "solution"}
exec(compile(open("solution.py").read(), "solution.py", "exec"), space)
passed = 0
for test in order["tests"]:
    try:
        exec(compile(test, "test.py", "exec"), space)
        passed += 1
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}"[:500])
sys.stdout.write("\\n" + order["token"] + " " + str(passed) + "\\n")
"""


async def unit_tests(
    reply: str, answer: object, *, seconds: float = 10.0, share: bool = False, setup: str = ""
) -> float:
    """1 where the code passes every test, else 0; with ``share`` the part of the tests that pass.

    The code is the last fenced block of the reply, or the whole reply. The answer is the test code, or a list of them,
    each a test; they see what the code defines. Code that ends the process, hangs or takes more than 512 MiB gets 0.
    A program that hunts for the tests in its own process can cheat: keep tests that matter for the evaluation apart.

    Args:
        seconds: that all tests of a reply may take together.
        setup: Python that is run before the code, such as imports.

    Raises:
        BadInput: the answer is no test code. MissingExtra: bubblewrap is not installed.
    """
    tests = [answer] if isinstance(answer, str) else answer
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) and test.strip() for test in tests):
        remedy = "Give the tests in the answer column, as Python text or a list of such texts."
        raise BadInput(f"the answer {str(answer)[:60]!r} is no test code", remedy=remedy)
    blocks = FENCE.findall(reply)
    code = blocks[-1] if blocks else reply
    if len(code) > LONGEST or "\0" in code:
        return 0.0
    token = secrets.token_hex(16)
    files: dict[str, str | bytes] = {
        "driver.py": DRIVER,
        "solution.py": f"{setup}\n{code}".encode(errors="replace"),
    }
    order = json.dumps({"tests": tests, "token": token})
    bounds = Limits(wall=seconds, cpu=seconds)
    done = await Sandbox(bounds).arun(["python3", "-I", "driver.py"], files, stdin=order)
    found = re.search(rf"^{token} (\d+)$", done.stdout.decode(errors="replace"), re.MULTILINE)
    passed = int(found[1]) if found and done.ok else 0
    return passed / len(tests) if share else float(passed == len(tests))
