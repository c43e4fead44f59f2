"""The Red Queen engine over agents: prompts and policies performed as runs in a store, judges that evolve too."""

from clew.evolve.agents.agents_work import AgentsWork, Counted
from clew.evolve.agents.labelled_work import Labelled, labelled_from, refuse_overlap
from clew.evolve.agents.prompted_judge import PromptedJudge
from clew.evolve.agents.recorded_runs import RecordedRuns, shown_work

__all__ = [
    "AgentsWork",
    "Counted",
    "Labelled",
    "PromptedJudge",
    "RecordedRuns",
    "labelled_from",
    "refuse_overlap",
    "shown_work",
]
