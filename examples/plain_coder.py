"""A coding agent that knows nothing of Clew: it asks a model for shell commands and runs them where it stands.

    clew run --command 'python3 examples/plain_coder.py' --world "workspace(verify='python3 check.py')" \\
        --task 'fix total' --model http://localhost:8000/v1#qwen3 -n 4

It needs the standard library alone, and OPENAI_BASE_URL as any client of OpenAI's API does. The task comes on its
standard input; SYSTEM, TURNS and MODEL, as in --command 'env TURNS=5 python3 ...', say how it works. Clew runs it, and
with it every command, in the sandbox.
"""

import json
import os
import subprocess
import sys
import urllib.request

TURNS = int(os.environ.get("TURNS", "20"))
SYSTEM = "Answer with one shell command in each reply, and with the one word done when the task is done."


def ask(messages: list[dict[str, str]]) -> str:
    body = json.dumps({"model": os.environ.get("MODEL", "any"), "messages": messages}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"] or ""


def main() -> None:
    messages = [{"role": "system", "content": os.environ.get("SYSTEM", SYSTEM)}]
    messages.append({"role": "user", "content": sys.stdin.read()})
    for _ in range(TURNS):
        said = ask(messages)
        messages.append({"role": "assistant", "content": said})
        if said.strip() in ("done", ""):
            break
        done = subprocess.run(["sh", "-c", said], capture_output=True, text=True, errors="replace", timeout=120)
        told = (done.stdout + done.stderr).strip()[-4000:]
        messages.append({"role": "user", "content": f"{told}\nexit {done.returncode}".strip()})
    print(messages[-1]["content"])


if __name__ == "__main__":
    main()
