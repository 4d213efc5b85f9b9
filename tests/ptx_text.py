"""The text of a PTX module as its functions, instructions and variables, for the interpreter of `ptx_interpreter.py`.

Reads what LLVM writes: one statement after the other, no macros, tables written out number by number.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

TYPES = {
    f"{kind}{bits}": np.dtype(f"{code}{bits // 8}")
    for kind, code in zip("bus", "uui", strict=True)
    for bits in (8, 16, 32, 64)
}
TYPES |= {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "pred": np.dtype(bool)}


class PtxError(Exception):
    """PTX that cannot be read or is not known here, or a kernel that does what it must not."""


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction: its line and text, the predicate that guards it ("%p1", "!%p1" or ""), opcode in parts, operands."""

    line: int
    text: str
    guard: str
    opcode: tuple[str, ...]
    operands: tuple[str, ...]

    def error(self, message: str) -> PtxError:
        return PtxError(f"line {self.line}: {self.text}\n{message}")


@dataclasses.dataclass(frozen=True)
class Variable:
    """`size` bytes of memory with a name. `initial` holds those that the module gives, None where it gives none."""

    name: str
    space: str
    size: int
    initial: bytes | None


@dataclasses.dataclass
class Function:
    """A kernel or a function that it calls.

    Numbers that are passed to functions are kept in variables that belong to the called function: `name#0`, `name#1`, ...,
    and `name#result`. Instructions of the caller and of the called function name them so.
    """

    name: str
    is_kernel: bool
    parameters: list[str]
    registers: dict[str, str] = dataclasses.field(default_factory=dict)
    variables: list[Variable] = dataclasses.field(default_factory=list)
    instructions: list[Instruction] = dataclasses.field(default_factory=list)
    labels: dict[str, int] = dataclasses.field(default_factory=dict)


def read_module(text: str) -> tuple[dict[str, Function], list[Variable]]:
    """Functions by their names, and variables of the module."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())  # noqa: E731  # positions stay, and with them line numbers
    text = re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)
    text = re.sub(r"^\s*\.(version|target|address_size|file|loc)\b[^\n]*", blank, text, flags=re.MULTILINE)
    functions, outside, start = {}, [], 0
    while match := _HEADER.search(text, start):
        outside.append(text[start : match.start()])
        kind, result, name, parameters, brace = match.groups()
        start = match.end()
        if brace == ";":
            continue
        end = _closing_brace(text, start)
        function = Function(
            name=name,
            is_kernel=kind == "entry",
            parameters=_names(parameters),
        )
        _Reader(text, start, end, function, _names(result)).read()
        functions[name] = function
        start = end + 1
    outside.append(text[start:])
    variables = [_variable(*match.groups()) for match in _VARIABLE.finditer("".join(outside))]
    return functions, variables


_HEADER = re.compile(r"\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*(?:\(([^)]*)\))?[^{};]*([{;])")
_VARIABLE = re.compile(
    r"\.(global|const|local)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?(?:\s*=\s*\{?([^;}]*)\}?)?\s*;"
)
_STATEMENT = re.compile(r"\s*(?:(?P<label>[\w$]+):(?!:)|(?P<open>\{)|(?P<close>\})|(?P<words>[^;]*);)")
_INSTRUCTION = re.compile(r"(?:@(!?[%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)


def _closing_brace(text: str, start: int) -> int:
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise PtxError("a brace is not closed")


def _names(parameters: str | None) -> list[str]:
    return re.findall(r"([\w$]+)(?:\[\d*\])?\s*(?:,|$)", parameters or "")


def _variable(space: str, kind: str, name: str, count: str | None, initial: str | None) -> Variable:
    size = TYPES[kind].itemsize * (1 if count is None else int(count))
    if initial is None:
        return Variable(name, space, size, None)
    ones = (1 << 8 * TYPES[kind].itemsize) - 1
    numbers = np.array([literal(x.strip()) & ones for x in initial.split(",")], np.uint64)
    return Variable(name, space, size, numbers.astype(f"u{TYPES[kind].itemsize}").tobytes().ljust(size, b"\0"))


def literal(text: str) -> int | None:
    """The bits of a number written in an instruction, negative ones as negative integers; None if it is none.

    Floats are written with their bits, as LLVM does.
    """
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", text):
        return int(text[2:], 16)
    if re.fullmatch(r"[+-]?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return int(text.rstrip("U"), 0)
    return None


class _Reader:
    """Reads the statements of one function."""

    def __init__(self, text: str, start: int, end: int, function: Function, results: list[str]):
        self.text, self.start, self.end, self.function = text, start, end, function
        own = [] if function.is_kernel else function.parameters
        self.passed = {name: f"{function.name}#{k}" for k, name in enumerate(own)}
        self.passed |= dict.fromkeys(results, f"{function.name}#result")
        self.scopes: list[int] = []

    def read(self) -> None:
        at, line = self.start, self.text.count("\n", 0, self.start) + 1
        while match := _STATEMENT.match(self.text, at, self.end):
            first = line + self.text.count("\n", at, match.start(match.lastgroup or 0))
            line += self.text.count("\n", at, match.end())
            at = match.end()
            if match["label"]:
                self.function.labels[match["label"]] = len(self.function.instructions)
            elif match["open"]:
                self.scopes.append(len(self.function.instructions))
            elif match["close"]:
                self._rename_passed(self.scopes.pop())
            else:
                self._statement(match["words"].strip(), first)

    def _statement(self, words: str, line: int) -> None:
        function = self.function
        if words.startswith(".reg"):
            kind, names = words[4:].strip().lstrip(".").split(None, 1)
            for name in names.split(","):
                base, count = re.findall(r"^([%\w$]+)(?:<(\d+)>)?$", name.strip())[0]
                for k in range(int(count or 0)):
                    function.registers[f"{base}{k}"] = kind
                if not count:
                    function.registers[base] = kind
        elif words.startswith(".local"):
            function.variables += [_variable(*match.groups()) for match in _VARIABLE.finditer(words + ";")]
        elif words.startswith((".param", ".pragma")):
            pass
        elif match := _INSTRUCTION.fullmatch(words):
            guard, opcode, operands = match.groups()
            # Commas within brackets and braces belong to one operand.
            parts = [x.strip() for x in re.split(r",(?![^{\[(]*[}\])])", operands)] if operands else []
            text = " ".join(words.split())
            instruction = Instruction(line, text, guard or "", tuple(opcode.split(".")), tuple(parts))
            function.instructions.append(_renamed(instruction, self.passed))
        else:
            raise PtxError(f"line {line}: cannot read {words[:80]}")

    def _rename_passed(self, first: int) -> None:
        """A scope holds one call: what is passed gets the names that the called function uses."""
        instructions = self.function.instructions
        for call in [i for i in instructions[first:] if i.opcode[0] == "call"]:
            results, name, arguments = call_parts(call)
            names = {a: f"{name}#{k}" for k, a in enumerate(arguments)} | dict.fromkeys(results, f"{name}#result")
            instructions[first:] = [i if i is call else _renamed(i, names) for i in instructions[first:]]


def _renamed(instruction: Instruction, names: dict[str, str]) -> Instruction:
    if "param" not in instruction.opcode:
        return instruction
    operands = []
    for operand in instruction.operands:
        name = re.match(r"\[([\w$]+)", operand)
        operands.append(operand.replace(name[1], names[name[1]]) if name and name[1] in names else operand)
    return dataclasses.replace(instruction, operands=tuple(operands))


def call_parts(call: Instruction) -> tuple[Sequence[str], str, Sequence[str]]:
    """Variable of the result (at most one), name of the function, variables of the arguments."""
    lists = [re.findall(r"[\w$]+", x) for x in call.operands]
    results = lists.pop(0) if call.operands[0].startswith("(") else []
    return results, lists[0][0], lists[1] if len(lists) > 1 else []
