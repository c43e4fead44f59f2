"""Forks inside a reply: keeps its first tokens, samples the rest again, and prints where the replies part.

The model is a Markov chain with token ids, so the program needs no weights. Any local model works the same way.
"""

from __future__ import annotations

import clew


def main() -> None:
    runner = clew.Runner("chatter", None, clew.model("markov", tokens=True))
    run = runner.collect([clew.Task("say-1", "Tell me something.")], n=1, seed=4).runs[0]
    ask = next(call for call in run.calls if call.kind == "ask")
    print("recorded:", run.reply(ask.seq).message.text)

    unsure = int(ask.entropies[1:].argmax()) + 1
    print(f"least sure before token {unsure} ({ask.entropies[unsure]:.2f} nats of entropy); forked there:")
    for fork in runner.fork(run, at=run.at(ask, token=unsure), n=4):
        call = fork.calls[ask.seq]
        print(f"  {fork.reply(ask.seq).message.text}   [{call.forced} forced, {len(call.logprobs)} sampled]")

    given = runner.fork(run, at=ask.seq, reply="I would rather not.")[0]
    print("given whole:", given.reply(ask.seq).message.text, f"[{given.calls[ask.seq].finish}]")


if __name__ == "__main__":
    main()
