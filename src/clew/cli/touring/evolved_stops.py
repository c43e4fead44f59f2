"""The last stops of `clew tour`: a prompt and its judge that improve together, and a theory of how people choose."""

from __future__ import annotations

from clew.cli.touring.journey import Found, Stop, Walk, figure, report


def judge(walk: Walk) -> Found:
    """Improve a clerk's policy under a judge that is replaced where a private set of labelled work says so."""
    sizes = f"--outcomes {walk.few(8192, 1024)} --folder {walk.path('policy')}"
    evolved = walk.type(f"evolve agents --world desk {sizes}")
    seen = evolved["judge_held_out"]
    fresh = "was not tested" if seen["right"] is None else f"is right on {seen['right']:.0%}"
    return Found(
        figure=report(evolved["gain"], "success at held-out tasks gained by the search"),
        control=report(evolved["before"], "success before"),
        means=f"The judge was replaced {evolved['replacements']} times; on held-out work, by which it was not chosen, "
        f"the last {fresh}.",
        place="runs?q=world%3Ddesk",
    )


def theory(walk: Walk) -> Found:
    """Search for a rule by which simulated people choose; which one they follow is known."""
    cycles = f"--cycles {walk.few(4, 2)} --name tour"
    found = walk.type(f"evolve theories --people wadd {cycles}")
    error = found["error"]
    noise = error["noise"]
    return Found(
        figure=report(error, f"mean squared error where it was not fitted, of: {error['theory']}"),
        control=figure("what noise alone leaves", noise, noise, noise, found["participants"], "people"),
        means=found["verdict"][0],
        place="reports",
    )


STOPS = (
    Stop(
        name="judge",
        does=(
            "Agents and judges are changed in turn; a new judge replaces the old one only by labelled work that "
            "neither has seen, and then old verdicts no longer count."
        ),
        paper="E178",
        arxiv="2606.26294",
        method="Agents and judges that improve together",
        walk=judge,
        asks="Is the agent better, or has it learnt to please the judge?",
    ),
    Stop(
        name="theory",
        does=(
            "Two rival rules, a design on which they differ, people's choices on it; the worse rival is replaced, "
            "and again."
        ),
        paper="E176",
        arxiv="2606.26448",
        method="Theories of how people choose",
        walk=theory,
        asks="By which rule do people decide?",
    ),
)
