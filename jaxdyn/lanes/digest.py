"""A fingerprint of the lane compiler, which records of measurements carry: they hold for the code that was measured."""

import hashlib
from pathlib import Path


def sources_digest() -> str:
    """Of all source files of this package."""
    found = hashlib.sha256()
    home = Path(__file__).parent
    for path in sorted(home.rglob("*.py")):
        found.update(path.relative_to(home).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]
