"""The command line `jaxdyn <verb> ...`.

This module imports nothing that takes time, so that an interrupt during the imports of a command is one line, too.
"""

from collections.abc import Sequence

from jaxdyn.jobs.interrupts import own_process


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb of the command line.

    Args:
        argv: Arguments; by default those of this process, which Ctrl-C and SIGTERM then end within a second.

    Returns:
        Exit status, see `jaxdyn.jobs.running.exit_status`.
    """

    def act() -> int:
        from jaxdyn.jobs.verbs import run_verb

        return run_verb(argv)

    return own_process(act) if argv is None else act()
