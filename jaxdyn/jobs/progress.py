"""Messages of a verb about slow steps such as compilations, which do not damage its progress bars."""

import contextlib
import logging
import sys
from collections.abc import Iterator

from tqdm import tqdm


class _BesideBars(logging.Handler):
    """Handler that writes messages to standard error without damaging progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


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
