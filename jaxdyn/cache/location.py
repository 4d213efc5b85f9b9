"""Selection of the cache folder."""

import logging
import os
import warnings
from pathlib import Path

import platformdirs

from jaxdyn.cache.files import CacheFiles

VARIABLE = "JAXDYN_CACHE_DIR"

_LOGGER = logging.getLogger("jaxdyn")


class _Chosen:
    """The selected folder; None before the first use."""

    files: CacheFiles | None = None
    is_chosen = False


def set_directory(path: Path | str | None) -> None:
    """Store compiled programs in this folder; with None they exist only in the memory of the process.

        jaxdyn.cache.set_directory("/scratch/me/jaxdyn")

    A file is used only if it belongs to the user, other users may not write to it, and its checksum is valid. Other files are
    removed, and their programs are compiled again. These checks protect against damage and against other users, but not against
    programs that run as the same user.

    Raises:
        ValueError: Other users may write to the folder, or replace it. Files in the folder are executed, so only the user may write
            to it.
        OSError: The folder cannot be created.
    """
    _Chosen.files = None if path is None else CacheFiles(Path(path).expanduser())
    _Chosen.is_chosen = True


def directory() -> Path | None:
    """The folder of compiled programs, or None if they are kept in memory only."""
    found = files()
    return None if found is None else found.folder


def files() -> CacheFiles | None:
    """The cache files in use, or None without a cache folder. The first call selects the folder."""
    if not _Chosen.is_chosen:
        _choose_by_default()
    return _Chosen.files


def _choose_by_default() -> None:
    """Select the folder that the environment names, or that of the user; without a usable folder, programs are kept in memory."""
    named = os.environ.get(VARIABLE)
    set_directory(None)
    if named == "":
        return
    folder = named or _of_user()
    try:
        set_directory(folder)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the home folder of a user who does not exist
        reason = (isinstance(error, OSError) and error.strerror) or error
        text = (
            f"the cache folder {folder} cannot be used ({reason}), so compiled programs are not kept for later processes; "
            f"set {VARIABLE} to another folder, or to an empty value"
        )
        if named is None and isinstance(error, OSError):  # a home folder that is not writable is common
            _LOGGER.info(text)
        else:
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _of_user() -> Path:
    return Path(platformdirs.user_cache_dir("jaxdyn", appauthor=False))
