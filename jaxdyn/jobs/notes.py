"""Messages of a verb besides its results: notes instead of warnings, and announcements of slow steps such as compilations."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator


class _BesideBars(logging.Handler):
    """Handler that writes messages to standard error without damaging progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm  # slow to import

        tqdm.write(self.format(record), file=sys.stderr)


@contextlib.contextmanager
def warnings_as_notes(quiet: bool = False) -> Iterator[None]:
    """Context in which warnings, such as those about ignored elements of files, are printed as notes; if `quiet` is true,
    they are omitted."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for message in [] if quiet else dict.fromkeys(str(warning.message) for warning in caught):
        print(f"note: {message}")


@contextlib.contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Context in which a warning is one line on standard error, without the line of code that raised it."""

    def show(message, category, filename, lineno, file=None, line=None) -> None:
        from tqdm import tqdm  # slow to import

        tqdm.write(f"jaxdyn: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def compilations_told() -> Iterator[None]:
    """Context in which the messages of the logger "jaxdyn" are printed."""
    logger, handler = logging.getLogger("jaxdyn"), _BesideBars()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
