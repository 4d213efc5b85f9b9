"""Wording that the texts of this project avoid, because readers of the field stumble on it, and where it occurs.

Texts are docstrings, comments, messages and help (all strings of several words) of the package and the experiments, the guides, and
the comments of configs and mechanism files.
Run as a script, it lists every occurrence: `python tests/prose.py [FILE_OR_FOLDER ...]`.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
READ_BY_USERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "jaxdyn", "experiments", "configs", "tests/README.md")

# In front of "number" these words say which kind of number is meant.
_KINDS_OF_NUMBERS = (
    "random|condition|floating-point|Floating-point|subnormal|Subnormal|real|complex|dual|whole|natural|rational|integer|finite|prime|single|double|equation|formula|"
    "line|version|port|issue|section|row|batch|step|serial|process|page|Reynolds|chapter|odd|even|large|small"
)

AVOIDED: dict[str, tuple[str, str]] = {
    # name: (pattern, remedy)
    "what": (r"\b[Ww]hat\b(?![^.?!]*\?)", "name the thing instead of a clause with 'what'"),
    "is no": (
        r"(?<![Tt]here )\b(?:is|are|was|were|be) no\b(?! (?:longer|more|less|fewer|larger|smaller|better|worse|different)\b)",
        "negate the verb: 'is not a', 'does not have'",
    ),
    "none of": (r"\b[Nn]one of\b", "negate the verb, or write 'no ... is'"),
    "number": (
        rf"(?<!{')(?<!'.join(f'{kind} ' for kind in _KINDS_OF_NUMBERS.split('|'))})\b[Nn]umbers?\b(?!\s+of\b|: [A-Z])",
        "parameter, value, component, entry or index; 'number of ...' and kinds of numbers are allowed",
    ),
    "tell": (r"\b(?:[Tt]ell|tells|told|[Tt]elling)\b", "state, show, report, distinguish or determine"),
    "anew": (r"\banew\b", "again"),
    "at hand": (r"\bat hand\b", "available"),
    "by turns": (r"\bby turns\b|\bin turns\b", "alternately"),
    "in vain": (r"\bin vain\b", "without success"),
    "comes to": (r"\b(?:comes?|came) to(?! (?:rest|an? end|a stop)\b)", "is, equals, results in"),
    "goes on": (r"\b(?:go|goes|going|went) on\b", "continue, resume"),
    "goes through": (r"\b(?:go|goes|going|went) through\b(?! (?:zero|a|the)\b)", "is processed, passes"),
    "by itself": (r"\bby (?:itself|themselves)\b", "automatically, alone"),
    "of its own": (r"\bof (?:its|their|his|one's) own\b", "own, separate, private"),
    "never a": (r"\bof nothing\b|\bfor nothing\b", "name the thing that is missing; add it"),
    "room": (r"\brooms?\b", "package"),
    "definition by a fragment": (
        r"(?m)^ {6,}[a-z_]\w*(?:, \w+)*(?: \([^)]*\))?: "
        r"(?:[Oo]f|[Aa]t (?:most|least|first)|[Tt]o begin|[Aa]s for|[Ff]or|[Bb]y|[Ii]n|[Oo]n)\b"
        r"(?!.*=)",
        "begin the definition with the noun that it defines: 'Maximum number of ...', 'Rate of the angle'",
    ),
    "British spelling": (
        r"\b\w*(?:[Cc]entre|[Cc]olour|[Bb]ehaviour|[Nn]eighbour|[Ff]avour|[Mm]odell(?:ed|ing)|[Tt]ravell(?:ed|ing)|[Ll]abell(?:ed|ing)|"
        r"[Mm]etres?\b|[Ll]itres?\b|[Ff]ibre|[Aa]nalyse|[Oo]rganis|[Rr]ecognis|[Mm]inimis|[Mm]aximis|[Oo]ptimis|[Nn]ormalis|[Ll]inearis|"
        r"[Ii]nitialis|[Dd]iscretis|[Pp]arametris|[Rr]egularis|[Ss]ummaris|[Gg]eneralis|[Gg]rey)\w*",
        "American spelling",
    ),
}
# "Lane" is the SIMD lane of the compiler; elsewhere one of a batch is a sample. An argument with that name may begin its entry.
_LANE = (
    r"(?<![\"-])(?<!SIMD )\b[Ll]anes?\b(?!\s+(?:# )?compiler)(?!\.|: [A-Z])",
    "sample or run; 'lane' is for SIMD lanes of the lane compiler",
)
_ABOUT_THE_COMPILER = (
    "jaxdyn/lanes",
    "jaxdyn/compute",
    "jaxdyn/cache",
    "experiments/gpu",
    "experiments/peers",
    "experiments/tables",
    "experiments/noisy_policies",
)


class Occurrence(NamedTuple):
    """Where a text holds an avoided wording."""

    file: str
    line: int
    name: str
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: '{self.text}' ({self.name}: {self.remedy})"


def occurrences(*places: str) -> list[Occurrence]:
    """All avoided wordings in these files and folders, relative to the root of the project."""
    return [found for place in places for path in _files(ROOT / place) for found in _occurrences_in(path)]


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
    else:
        yield from sorted(path for path in place.rglob("*") if path.suffix in (".py", ".md", ".toml"))


def _occurrences_in(path: Path) -> Iterator[Occurrence]:
    file = path.relative_to(ROOT).as_posix()
    avoided = dict(AVOIDED)
    if not file.startswith(_ABOUT_THE_COMPILER):
        avoided["lane"] = _LANE
    for start, text in texts(path):
        for name, (pattern, remedy) in avoided.items():
            for match in re.finditer(pattern, text):
                around = text[max(match.start() - 30, 0) : match.end() + 30]
                yield Occurrence(
                    file, start + text.count("\n", 0, match.start()), name, " ".join(around.split()), remedy
                )


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file, each piece with the line where it begins; code, names in backticks and addresses are blank."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        pieces = [*_strings(ast.parse(content)), *_comments(content)]
    elif path.suffix == ".md":
        pieces = [(1, content)]
    else:
        pieces = [(k, line[line.index("#") :]) for k, line in enumerate(content.splitlines(), 1) if "#" in line]
    for line, text in pieces:
        yield line, re.sub(r"(?ms)^( *)```.*?^\1```|`[^`\n]+`|https?://\S+|\]\([^)]*\)", _blank, text)


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Strings of at least three words; in formatted ones `{}` stands for what is filled in."""
    passed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):  # the shape of an annotation
            passed.update(ast.walk(node.slice))
            continue
        if isinstance(node, ast.JoinedStr) and node not in passed:
            passed.update(node.values)
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in passed:
            text = node.value
        else:
            continue
        if len(text.split()) >= 3 and re.search(r"[a-z]{2,} [a-z]{2,}", text):
            yield node.lineno, text


def _comments(content: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


if __name__ == "__main__":
    found = occurrences(*(sys.argv[1:] or READ_BY_USERS))
    for occurrence in found:
        print(occurrence)
    print(f"{len(found)} occurrences", file=sys.stderr)
