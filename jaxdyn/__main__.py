"""Entry point of `python -m jaxdyn`, which is equivalent to the command `jaxdyn`."""

import sys

from jaxdyn.cli import main

sys.exit(main())
