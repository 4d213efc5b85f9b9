"""Reading of untrusted XML: all sizes are bounded, entities are never resolved, and every element stores its line number.

Only the content that robot descriptions need is stored: elements, attributes, children, and the beginning of a text.
"""

import dataclasses
import math
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler

import defusedxml.sax
from defusedxml import DefusedXmlException

from jaxdyn.errors import one_line
from jaxdyn.io.errors import ConfigError
from jaxdyn.io.reading import content

LARGEST_FILE = 16 * 2**20  # bytes; the largest known robot description has 2 MiB
_DEEPEST = 100
_MOST_ELEMENTS = 500_000
_LONGEST_NAME = 200
_LONGEST_SHOWN = 60  # characters of a text that a message quotes
_MOST_SHOWN = 20
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# Mechanisms do not have parts of a billion kilometers or tons: larger values are mistakes, and their powers would overflow.
_LARGEST_NUMBER = 1e12

KINEMATIC = "read the file with kinematic=True (--kinematic on the command line) for kinematics and pictures alone"
EXPAND_XACRO = "expand it first, as in: xacro robot.urdf.xacro name:=value > robot.urdf"
RENAME_XACRO = f"give the file the ending .xacro, or {EXPAND_XACRO}"
CONVERT_SDF = "SDF is not read; convert it to MJCF, as sdf2mjcf of Gazebo does: sdf2mjcf robot.sdf robot.xml"

# Remedies by the message of expat.
_REMEDIES = {
    "no element found": "it ends before its outermost element is closed, so add the missing part",
    "unclosed token": "it ends in the middle of an element, so add the missing part",
    "mismatched tag": "every <element> must be closed by a </element> of the same name, inner elements first",
    "duplicate attribute": "remove one of the two",
    "undefined entity": "write & as &amp; in texts",
    "junk after document element": "keep one outermost element and remove everything after it",
    "syntax error": "it must begin with an element such as <robot>, so check the path",
    "not well-formed (invalid token)": "quote all values, write & as &amp; and < as &lt;, and save it as UTF-8",
    "encoding specified in XML declaration is incorrect": "save it as UTF-8 and correct its first line",
}


class IgnoredContent(UserWarning):
    """Warning that a file contains elements that jaxdyn does not read; the message names every one with its line."""


class RepeatedElement(ConfigError):
    """Error of an element that occurs twice but may occur only once.

    Attributes:
        inside: Tag of the element that contains both occurrences.
    """

    def __init__(self, message: str, inside: str):
        super().__init__(message)
        self.inside = inside


def warn_of_unread(root: "Element") -> None:
    """Issue one `IgnoredContent` warning that names everything in a file that was not read, if there is anything."""
    lines: dict[str, list[int]] = {}
    for what, line in root.unread():
        lines.setdefault(what, []).append(line)
    if lines:
        parts = [
            f"{what} (line {some([str(line) for line in where], 3)})"
            for what, where in list(lines.items())[:_MOST_SHOWN]
        ]
        if len(lines) > _MOST_SHOWN:
            parts.append(f"and {len(lines) - _MOST_SHOWN} more kinds")
        warnings.warn(one_line(f"{root.file}: ignored {'; '.join(parts)}"), IgnoredContent, stacklevel=4)


def some(texts: Sequence[str], most: int) -> str:
    """The first of some texts, and the number of the others."""
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most} more"


def shortened(text: str) -> str:
    """A text from a file, shortened for a message if it is too long."""
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def problem_with_name(name: str) -> str | None:
    """Reason why a text cannot be used as a name, with the remedy; None if it can be used."""
    if not name.strip():
        return "is empty; give a name"
    if not name.isprintable():
        return "has line breaks or other invisible characters; remove them"
    if len(name) > _LONGEST_NAME:
        return f"has {len(name)} characters; give a name of at most {_LONGEST_NAME}"
    return None


def unused(name: str, taken: Collection[str]) -> str:
    """The name, followed by as many underscores as distinguish it from the names that are taken."""
    while name in taken:
        name += "_"
    return name


@dataclasses.dataclass
class Element:
    """One element of an XML file. It notes which of its parts have been read, so that `warn_of_unread` can name the others.

    Attributes:
        tag: Name of the element.
        attributes: Texts by name.
        line: Line at which the element begins, from 1.
        file: File that contains the element, for messages.
        children: Elements within the element.
        content: First characters of the text within the element, without spaces around it.
        read: Attributes, and tags of children as "<tag>", that have been asked for.
        skipped: Attributes and tags of children that need not be read.
        ignored: Descriptions and lines of values that were read and not used.
    """

    tag: str
    attributes: dict[str, str]
    line: int
    file: Path | str
    children: list["Element"] = dataclasses.field(default_factory=list)
    content: str = ""
    read: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    ignored: list[tuple[str, int]] = dataclasses.field(default_factory=list)

    def error(self, message: str) -> ConfigError:
        """A one-line error that names file, line and element."""
        name = f" name={self._shown('name')}" if "name" in self.attributes else ""
        return ConfigError(f"{self.file}, line {self.line}, <{shortened(self.tag)}{name}>: {message}")

    def all(self, *tags: str) -> list["Element"]:
        """Children with one of these tags."""
        self.read |= {f"<{tag}>" for tag in tags}
        return [child for child in self.children if child.tag in tags]

    def optional(self, tag: str) -> "Element | None":
        """The only child with this tag, or None."""
        found = self.all(tag)
        if len(found) > 1:
            message = f"<{self.tag}> has a second <{tag}>, the first is on line {found[0].line}; remove one"
            raise RepeatedElement(str(found[1].error(message)), self.tag)
        return found[0] if found else None

    def required(self, tag: str) -> "Element":
        """The only child with this tag."""
        found = self.optional(tag)
        if found is None:
            raise self.error(f"<{tag}> is missing; add it")
        return found

    def text(self, name: str, default: str | None = None) -> str:
        """Text of an attribute, which is required if there is no default."""
        self.read |= {name}
        value = self.attributes.get(name, default)
        if value is None:
            raise self.error(f'attribute "{name}" is missing; add it')
        return value

    def name(self, attribute: str = "name") -> str:
        """Text of an attribute that is a name: not empty, one line, and short."""
        value = self.text(attribute)
        problem = problem_with_name(value)
        if problem is not None:
            raise self._unusable(attribute, f", which {problem}")
        return value

    def number(self, name: str, default: float | None = None, *, infinite: bool = False) -> float:
        """Value of a numeric attribute, which is required if there is no default; `infinite` allows "inf"."""
        if default is not None and name not in self.attributes:
            return default
        return self._parsed(name, self.text(name).strip(), infinite)

    def positive(
        self, name: str, problem: str, default: float | None = None, *, or_zero: bool = False, infinite: bool = False
    ) -> float:
        """Value of a numeric attribute, as `number` reads it, which is positive or, if allowed, zero.

        `problem` is the message about another value, after the name and the value.
        """
        value = self.number(name, default, infinite=infinite)
        if value < 0.0 or (value == 0.0 and not or_zero):
            raise self.error(f"{name} = {value:g}{problem}")
        return value

    def vector(self, name: str, count: int, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """Values of a numeric attribute with several entries separated by spaces; it is required if there is no default."""
        if default is not None and name not in self.attributes:
            return default
        words = self.text(name).split()
        if len(words) != count:
            raise self._unusable(name, f"; give {count} values separated by spaces")
        return tuple(self._parsed(name, word, False) for word in words)

    def below(self) -> Iterator["Element"]:
        """All elements within this element, at any depth."""
        waiting: list[Element] = [self]
        while waiting:
            children = waiting.pop().children
            yield from children
            waiting.extend(children)

    def skip(self, *names: str) -> None:
        """Allow attributes and children that are not read."""
        self.skipped |= set(names)

    def ignore(self, what: str, line: int | None = None) -> None:
        """Note that a value was not used; the line is that of the element if it is not given."""
        self.ignored.append((what, self.line if line is None else line))

    def unread(self) -> Iterator[tuple[str, int]]:
        """Everything that was not read of this element and of its children that were read, with the lines."""
        yield from self.ignored
        children = [child for child in self.children if child.tag not in self.skipped]
        for child in children:
            if f"<{child.tag}>" not in self.read:
                yield f"<{shortened(child.tag)}> in <{self.tag}>", child.line
        for name in self.attributes:
            if name not in self.read | self.skipped and not name.startswith("xmlns"):
                yield f'attribute "{shortened(name)}" of <{self.tag}>', self.line
        for child in children:
            if f"<{child.tag}>" in self.read:
                yield from child.unread()

    def _parsed(self, name: str, word: str, infinite: bool) -> float:
        if infinite and word.lstrip("+-").lower() in ("inf", "infinity"):
            return -math.inf if word.startswith("-") else math.inf
        if "${" in word:
            raise self._unusable(name, f", which is a formula of xacro; {RENAME_XACRO}")
        if not _NUMBER.fullmatch(word):
            raise self._unusable(name, "; give floating-point numbers such as 0.25 or 1e-3")
        value = float(word)
        if abs(value) > _LARGEST_NUMBER:
            if infinite:  # such values mean "no limit", for readers that do not support infinity
                return math.copysign(math.inf, value)
            raise self._unusable(name, ", which is too large for a mechanism; check its unit")
        return value

    def _unusable(self, name: str, problem: str) -> ConfigError:
        return self.error(f'attribute "{name}" is {self._shown(name)}{problem}')

    def _shown(self, name: str) -> str:
        return repr(shortened(self.attributes[name]))


def read_xml(path: Path | str) -> Element:
    """Root element of an XML file.

    Raises:
        ConfigError: The file cannot be read, is not XML, declares a document type or entities, or is too large or nested too
            deeply.
    """
    path = Path(path)
    data = content(path, LARGEST_FILE, "give a robot description")
    return parse_xml(data, path)


def parse_xml(data: bytes, file: Path | str) -> Element:
    """Root element of XML text; `file` is used in messages. The errors are those of `read_xml`."""
    parser = defusedxml.sax.make_parser()
    handler = _TreeHandler(file, parser)
    try:
        parser.forbid_dtd = True
        parser.setContentHandler(handler)
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # raised for codecs that do not decode text
            # The text is fed at once: if a long text is fed in pieces, expat scans the pieces repeatedly.
            parser.feed(_with_declaration_first(data))
            parser.close()
    except ConfigError:  # raised by the handler; it is a ValueError too
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
            f"{file}, line {error.getLineNumber()}: this is not XML ({error.getMessage()}); {remedy}"
        ) from None
    except (LookupError, ValueError, DeprecationWarning) as error:  # unknown or wrong encodings
        raise ConfigError(f"{file}: its text cannot be decoded ({shortened(str(error))}); save it as UTF-8") from None
    assert handler.root is not None  # expat refuses texts without an element
    return handler.root


def _with_declaration_first(data: bytes) -> bytes:
    """The text without a misplaced <?xml ...?> declaration, which is a common mistake; the encoding is then UTF-8."""
    start = data.find(b"<?xml ")
    if start <= 0 or data[:start].strip(b" \t\r\n\xef\xbb\xbf"):
        return data
    end = data.find(b"?>", start) + 2
    if end < 2:
        return data
    return data[:start] + b" " * (end - start) + data[end:]


class _TreeHandler(ContentHandler):
    def __init__(self, file: Path | str, parser: Any):
        super().__init__()
        self.root: Element | None = None
        self._file, self._parser = file, parser
        self._open: list[Element] = []
        self._count = 0

    def startElement(self, name, attrs):
        element = Element(name, dict(attrs.items()), self._parser.getLineNumber(), self._file)
        self._count += 1
        if len(self._open) >= _DEEPEST:
            raise element.error(f"elements are nested more than {_DEEPEST} levels deep; check the file")
        if self._count > _MOST_ELEMENTS:
            raise element.error(f"there are more than {_MOST_ELEMENTS} elements; give a robot description")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def characters(self, content):
        element = self._open[-1]
        element.content = (element.content + content.strip())[:_LONGEST_NAME]

    def endElement(self, name):
        self._open.pop()
