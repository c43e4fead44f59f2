"""The Red Queen engine over agents: prompts and policies performed as runs in a store, judges that evolve too."""

from clew.methods.coevolve.agents.agents_work import AgentsWork, Counted
from clew.methods.coevolve.agents.labelled_work import Labelled, labelled_from, refuse_overlap
from clew.methods.coevolve.agents.prompted_judge import PromptedJudge
from clew.methods.coevolve.agents.recorded_runs import RecordedRuns, shown_work

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
