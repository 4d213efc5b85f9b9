"""Jobs: what the command line runs. Each reads a config, works with a progress bar, and leaves a self-contained run directory."""

from jaxdyn.jobs.job import Job as Job
from jaxdyn.jobs.job import main as main
from jaxdyn.jobs.job import run as run
