"""`python -m jaxdyn`, the same as the command `jaxdyn`."""

import sys

from jaxdyn.cli import main

sys.exit(main())
