"""Tables of a config of `jaxdyn identify` that build objects of the library, and the names of losses and charts."""

from jaxdyn.jobs.optimize_kinds import Table


class ForceTable(Table):
    """A table [[force]]: a force in all joints; one value for all joints, or one per velocity component."""
