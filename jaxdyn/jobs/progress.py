"""What a verb says about its progress besides its bars: which function is being compiled, if that takes long."""

import contextlib
import logging
import sys
from collections.abc import Iterator

from tqdm import tqdm


class _BesideBars(logging.Handler):
    """Lines on standard error that leave progress bars whole."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stderr)


@contextlib.contextmanager
def compilations_told() -> Iterator[None]:
    """What the logger "jaxdyn" announces is printed."""
    logger, handler = logging.getLogger("jaxdyn"), _BesideBars()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
