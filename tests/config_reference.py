"""The reference of configs and mechanism files, from the same classes as the help pages of the command line.

    python tests/config_reference.py

renews it in configs/README.md, below the introduction, which is written by hand; tests/test_config_reference.py checks that it is
up to date.
"""

from pathlib import Path

from jaxdyn.io.mechanism_parts import describe_parts
from jaxdyn.jobs import verbs
from jaxdyn.jobs.settings import describe_settings, wrapped

PAGE = Path(__file__).parents[1] / "configs" / "README.md"
MARK = "<!-- The rest is made by `python tests/config_reference.py`. -->\n"


def introduction() -> str:
    """The part of the page that is written by hand."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0]


def reference() -> str:
    """All settings of the commands, and all tables of mechanism files, as Markdown."""
    parts = [_section(f"Settings of `jaxdyn {job.name}`", describe_settings(job.config_class)) for job in _JOBS]
    return "\n".join([*parts, _section("Forces and constraints of mechanism files", describe_parts())])


_JOBS = (verbs.ROLLOUT, verbs.IDENTIFY, verbs.OPTIMIZE)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n```text\n{wrapped(text).rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(f"{introduction()}{MARK}\n{reference()}", encoding="utf-8")
    print(PAGE)
