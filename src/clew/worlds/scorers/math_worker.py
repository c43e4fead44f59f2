"""The process in which ``mathematics`` compares expressions: a JSON line [answer, reply] in, a JSON number out.

``null`` says that the answer is no expression. It is run as a script and imports nothing of Clew; it must never
evaluate text as Python. Who started it ends it where an answer takes too long.
"""

import json
import resource
import sys
from typing import TextIO

MEMORY = 2 << 30  # bytes of address space


def main() -> None:
    import logging

    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)  # a reply that cannot be parsed is nothing to log
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = sys.stdout
    sys.stdout = sys.stderr
    _say(out, "ready")
    for line in sys.stdin:
        answer, reply = json.loads(line)
        try:
            gold = parse(answer, parsing_timeout=None) or parse(f"${answer}$", parsing_timeout=None)
            same = None
            if gold:
                said = parse(reply, parsing_timeout=None) or parse(f"${reply}$", parsing_timeout=None)
                same = float(verify(gold, said, timeout_seconds=None))
        except (MemoryError, RecursionError):
            same = 0.0
        _say(out, json.dumps(same))


def _say(out: TextIO, text: str) -> None:
    out.write(text + "\n")
    out.flush()


if __name__ == "__main__":
    main()
