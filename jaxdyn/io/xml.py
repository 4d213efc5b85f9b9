"""XML from strangers: read with bounds on everything, never resolving entities, every element knowing its line.

Only what robot descriptions need: elements, attributes and children; text between elements is not kept.
"""

import dataclasses
import math
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

import defusedxml.sax
from defusedxml import DefusedXmlException

from jaxdyn.io.errors import ConfigError
from jaxdyn.io.reading import content
from jaxdyn.mechanism.messages import one_line

_LARGEST_FILE = 16 * 2**20  # bytes; the largest robot description found anywhere has 2
_DEEPEST = 100
_MOST_ELEMENTS = 500_000
_LONGEST_NAME = 200
_LONGEST_SHOWN = 60  # of what a file says, in a message
_MOST_SHOWN = 20
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# A machine has no part of a billion kilometers or tons: a number beyond is an accident, and its powers would overflow.
_LARGEST_NUMBER = 1e12

EXPAND_XACRO = "expand the file first, as in: xacro robot.xacro > robot.urdf"

# What to do about what expat says.
_REMEDIES = {
    "no element found": "it ends before its outermost element is closed, so add what is missing",
    "unclosed token": "it ends in the middle of an element, so add what is missing",
    "mismatched tag": "every <element> is closed by a </element> of the same name, inner ones first",
    "duplicate attribute": "remove one",
    "undefined entity": "write & as &amp; in texts",
    "junk after document element": "keep one outermost element and remove what comes after it",
    "syntax error": "it must begin with an element such as <robot>, so check the path",
    "not well-formed (invalid token)": "quote all values, write & as &amp; and < as &lt;, and save it as UTF-8",
    "encoding specified in XML declaration is incorrect": "save it as UTF-8 and correct its first line",
}


class IgnoredContent(UserWarning):
    """A file holds something that jaxdyn does not read; the message names every element with its line."""


class Report:
    """What a reader ignored, for one warning at its end.

    Args:
        file: The file that is read.
    """

    def __init__(self, file: Path | str):
        self._file = file
        self._lines: dict[str, list[int]] = {}

    def ignored(self, what: str, line: int) -> None:
        """Remember something that was not read."""
        self._lines.setdefault(what, []).append(line)

    def warn(self) -> None:
        """One `IgnoredContent` warning that names everything, if there is anything."""
        if self._lines:
            parts = [f"{what} (line {_some(lines)})" for what, lines in list(self._lines.items())[:_MOST_SHOWN]]
            if len(self._lines) > _MOST_SHOWN:
                parts.append(f"and {len(self._lines) - _MOST_SHOWN} kinds more")
            warnings.warn(one_line(f"{self._file}: ignored {'; '.join(parts)}"), IgnoredContent, stacklevel=4)


def _some(lines: list[int]) -> str:
    shown = ", ".join(map(str, lines[:3]))
    return shown if len(lines) <= 3 else f"{shown} and {len(lines) - 3} more"


def shortened(text: str) -> str:
    """A text of a file for a message, without what is too long of it."""
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def problem_with_name(name: str) -> str | None:
    """Why a text is no name of anything and how to mend it, or None."""
    if not name.strip():
        return "is empty; give a name"
    if not name.isprintable():
        return "has line breaks or other invisible characters; remove them"
    if len(name) > _LONGEST_NAME:
        return f"has {len(name)} characters; give a name of at most {_LONGEST_NAME}"
    return None


@dataclasses.dataclass
class Element:
    """One element of an XML file.

    Attributes:
        tag: Its name.
        attributes: Texts by name.
        line: Where it begins, from 1.
        file: For messages.
        children: Elements in it.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    file: Path | str
    children: list["Element"] = dataclasses.field(default_factory=list)

    def error(self, message: str) -> ConfigError:
        """A one-line error that names file, line and element."""
        name = f" name={self._shown('name')}" if "name" in self.attributes else ""
        return ConfigError(f"{self.file}, line {self.line}, <{shortened(self.tag)}{name}>: {message}")

    def all(self, tag: str) -> list["Element"]:
        """Children with a tag."""
        return [child for child in self.children if child.tag == tag]

    def optional(self, tag: str) -> "Element | None":
        """The only child with a tag, or None."""
        found = self.all(tag)
        if len(found) > 1:
            raise found[1].error(f"<{self.tag}> has a second <{tag}>, the first is on line {found[0].line}; remove one")
        return found[0] if found else None

    def required(self, tag: str) -> "Element":
        """The only child with a tag."""
        found = self.optional(tag)
        if found is None:
            raise self.error(f"<{tag}> is missing; add it")
        return found

    def text(self, name: str, default: str | None = None) -> str:
        """An attribute, required if there is no default."""
        value = self.attributes.get(name, default)
        if value is None:
            raise self.error(f'attribute "{name}" is missing; add it')
        return value

    def name(self, attribute: str = "name") -> str:
        """An attribute that names something: not empty, one line, and short."""
        value = self.text(attribute)
        problem = problem_with_name(value)
        if problem is not None:
            raise self.error(f'attribute "{attribute}" is {self._shown(attribute)}, which {problem}')
        return value

    def number(self, name: str, default: float | None = None, *, infinite: bool = False) -> float:
        """An attribute that is one number, required if there is no default; `infinite` allows "inf"."""
        if default is not None and name not in self.attributes:
            return default
        return self._parsed(name, self.text(name).strip(), infinite)

    def vector(self, name: str, count: int, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """An attribute of several numbers, separated by spaces; required if there is no default."""
        if default is not None and name not in self.attributes:
            return default
        words = self.text(name).split()
        if len(words) != count:
            raise self.error(f'attribute "{name}" is {self._shown(name)}; give {count} numbers separated by spaces')
        return tuple(self._parsed(name, word, False) for word in words)

    def below(self) -> Iterator["Element"]:
        """All elements inside, at any depth."""
        waiting: list[Element] = [self]
        while waiting:
            children = waiting.pop().children
            yield from children
            waiting.extend(children)

    def report_unknown(self, report: Report, tags: Collection[str], attributes: Collection[str]) -> None:
        """Report children and attributes other than the ones that are known."""
        for child in self.children:
            if child.tag not in tags:
                report.ignored(f"<{shortened(child.tag)}> in <{self.tag}>", child.line)
        for name in self.attributes:
            if name not in attributes and not name.startswith("xmlns"):
                report.ignored(f'attribute "{shortened(name)}" of <{self.tag}>', self.line)

    def _parsed(self, name: str, word: str, infinite: bool) -> float:
        if infinite and word.lstrip("+-").lower() in ("inf", "infinity"):
            return -math.inf if word.startswith("-") else math.inf
        if "${" in word:
            raise self.error(f'attribute "{name}" is {self._shown(name)}, a formula of xacro; {EXPAND_XACRO}')
        if not _NUMBER.fullmatch(word):
            raise self.error(f'attribute "{name}" is {self._shown(name)}; give plain numbers such as 0.25 or 1e-3')
        value = float(word)
        if abs(value) > _LARGEST_NUMBER:
            if infinite:  # the way to write "no limit" for readers that know no infinity
                return math.copysign(math.inf, value)
            raise self.error(f'attribute "{name}" is {self._shown(name)}, beyond any machine; check its unit')
        return value

    def _shown(self, name: str) -> str:
        return repr(shortened(self.attributes[name]))


def read_xml(path: Path | str) -> Element:
    """Root element of an XML file.

    Raises:
        ConfigError: The file cannot be read, is no XML, declares a document type or entities, or is too large or too deep.
    """
    path = Path(path)
    data = content(path, _LARGEST_FILE, "give a robot description")
    return parse_xml(data, path)


def parse_xml(data: bytes, file: Path | str) -> Element:
    """Root element of XML text; `file` is for messages. Errors as for `read_xml`."""
    handler = _TreeHandler(file)
    try:
        parser = defusedxml.sax.make_parser()
        parser.forbid_dtd = True
        parser.setContentHandler(handler)
        handler.setDocumentLocator(parser)
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # of encodings that are none of texts
            # All at once: of a long text in pieces, expat reads each piece again and again.
            parser.feed(_with_declaration_first(data))
            parser.close()
    except ConfigError:  # of the handler; a ValueError too
        raise
    except DefusedXmlException:
        raise ConfigError(
            f"{file}: it declares a document type or entities, which can be used for attacks; remove the <!DOCTYPE ...>"
        ) from None
    except SAXParseException as error:
        if not data.strip():
            raise ConfigError(f"{file}: it is empty; give a robot description") from None
        remedy = _REMEDIES.get(error.getMessage(), "check it in an editor that knows XML")
        raise ConfigError(
            f"{file}, line {error.getLineNumber()}: this is no XML ({error.getMessage()}); {remedy}"
        ) from None
    except (LookupError, ValueError, DeprecationWarning) as error:  # unknown or wrong encodings
        raise ConfigError(f"{file}: its text cannot be decoded ({shortened(str(error))}); save it as UTF-8") from None
    assert handler.root is not None  # expat refuses texts without an element
    return handler.root


def _with_declaration_first(data: bytes) -> bytes:
    """The text with an <?xml ...?> that is not at its very start blanked out: a common slip, which leaves the encoding UTF-8."""
    start = data.find(b"<?xml ")
    if start <= 0 or data[:start].strip(b" \t\r\n\xef\xbb\xbf"):
        return data
    end = data.find(b"?>", start) + 2
    if end < 2:
        return data
    return data[:start] + b" " * (end - start) + data[end:]


class _TreeHandler(ContentHandler):
    def __init__(self, file: Path | str):
        super().__init__()
        self.root: Element | None = None
        self._file = file
        self._open: list[Element] = []
        self._count = 0
        self._locator = None

    def setDocumentLocator(self, locator):
        self._locator = locator

    def startElement(self, name, attrs):
        line = None if self._locator is None else self._locator.getLineNumber()
        element = Element(name, dict(attrs.items()), line or 0, self._file)
        self._count += 1
        if len(self._open) >= _DEEPEST:
            raise element.error(f"elements are nested more than {_DEEPEST} deep, which no robot description is")
        if self._count > _MOST_ELEMENTS:
            raise element.error(f"there are more than {_MOST_ELEMENTS} elements; this is no robot description")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def endElement(self, name):
        self._open.pop()
