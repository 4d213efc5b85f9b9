"""Jobs of the command line. Each job reads a config, shows its progress, and writes a self-contained run directory."""

from typing import TYPE_CHECKING

from jaxdyn.lazy import lazy_names

if TYPE_CHECKING:
    from jaxdyn.jobs.job import Job as Job
    from jaxdyn.jobs.running import main as main
    from jaxdyn.jobs.running import run as run
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
