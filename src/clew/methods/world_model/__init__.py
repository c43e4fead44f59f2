"""A model that answers in place of a world: how it is asked, kept honest, and compared with the real world.

Question: can I train or test an agent where the environment itself cannot be run?
For: who has recorded runs of a service and not the service.
Paper: E167, arXiv 2606.24597. Command: ``clew world fit | eval | check``. Page: docs/simulated.md, docs/world_fit.md.
One-line rule it must beat: the table of the commonest answer to each action.
"""

from clew.methods.world_model.simulated import Simulated

__all__ = ["Simulated"]
