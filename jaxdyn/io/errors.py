"""Errors of files and run directories."""

from jaxdyn.errors import Error, one_line


class ConfigError(Error, ValueError):
    """Error of a file that cannot be used; the message is one line with the file, the key and the remedy."""

    def __init__(self, message: str):
        super().__init__(one_line(message))


class RunError(Error, RuntimeError):
    """Error of a run directory that cannot be used; the message is one line with the path and the remedy."""

    def __init__(self, message: str):
        super().__init__(one_line(message))
