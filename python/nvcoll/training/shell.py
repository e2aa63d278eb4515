"""Reads the flags of a shell script, as far as assignments give them; nothing is run.

Variables and arrays get values in order; `$((...))` is computed. `if` and `case` follow the branch whose comparison of
texts holds; a condition that cannot be evaluated counts as true, with a note. Loops are skipped. A variable without a
value stays as it is spelled, so that an error can name it. Arguments of the script are those of its `set --`.
"""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatchcase
from operator import add, eq, floordiv, ge, gt, le, lt, mod, mul, ne, sub
from typing import Final

from nvcoll.errors import InvalidArgument

LONGEST: Final = 1 << 19
"""The characters of all statements with the values of their variables. Chosen: far more than any script has."""

MOST: Final = 300
"""The variables of a statement, and the conditions around it. Chosen in the same way."""

ASSIGNMENT: Final = re.compile(r"(?:export\s+|local\s+)?([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_]\w*|\d{1,3})(?:\[[@*]\])?(?::?[-=]([^{}]*))?\}|\$([A-Za-z_]\w*|\d)")
CONDITION: Final = re.compile(r"\[\[?\s+\"?([^\"\s=!]*)\"?\s+(==?|!=)\s+[\"']?([^\"'\s]*)[\"']?\s+\]\]?")
PATTERN: Final = re.compile(r"\(?([^\s()=$]+(?:\s*\|\s*[^\s()=$]+)*)\)(.*)", re.DOTALL)
PREFIX: Final = re.compile(r"([A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|[^\s\"'()]*))\s+(\S.*)", re.DOTALL)
REDIRECTION: Final = re.compile(r"\d?[<>|&]")
DOTTED: Final = re.compile(r"\+{0,2}([a-z]\w*(?:\.\w+)*)=(.*)")
ARITHMETIC: Final = re.compile(r"\$\((?:\(([^()]*(?:\([^()]*\)[^()]*)*)\)|expr ([^()]*))\)")
OPERATORS: Final = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Mod: mod}
EMPTINESS: Final = re.compile(r"\[\[?\s+(-[zn])\s+[\"']?([^\"'\s]*)[\"']?\s+\]\]?")
NUMBERS: Final = re.compile(r"\[\[?\s+[\"']?(\d{1,9})[\"']?\s+(-\w\w)\s+[\"']?(\d{1,9})[\"']?\s+\]\]?")
COMPARISONS: Final = {"-eq": eq, "-ne": ne, "-gt": gt, "-ge": ge, "-lt": lt, "-le": le}
PROCESSES: Final[tuple[str, ...]] = ("NPROC_PER_NODE", "NNODES")
ENDS: Final = {"for": "done", "while": "done", "until": "done"}


def flags(text: str, where: str) -> tuple[dict[str, str], list[str]]:
    """Returns the flags of a script by name, without dashes, and notes.

    Args:
        text: the script, or only arguments.
        where: the file, for messages.

    Raises:
        InvalidArgument: values of variables are beyond reading.
    """
    script = _read(text, where)
    used = [line for line in script.commands if "--num-layers" in line]
    lines = [*([] if used else script.values.values()), *script.commands]
    found, several = _named("\n".join(lines)), {"recompute-modules"}
    return {name: value if name in several else value.partition(" ")[0] for name, value in found.items()}, [
        *script.notes
    ]


def words(text: str, where: str, command: str) -> tuple[dict[str, object], list[str]]:
    """Returns the words of the first command that a regular expression finds, the number of processes, and notes.

    Raises:
        InvalidArgument: values of variables are beyond reading.
    """
    script = _read(text, where)
    line = next((line for line in script.commands if re.search(command, line)), text)
    found: dict[str, str] = {name: script.values[name] for name in PROCESSES if name in script.values}
    found |= {name: value if "modules" in name else value.partition(" ")[0] for name, value in _named(line).items()}
    switches = {"": True, "true": True, "True": True, "false": False, "False": False, "None": None}
    return {name: switches.get(value, value) for name, value in found.items()}, [*script.notes]


def _read(text: str, where: str) -> _Script:
    script = _Script(where)
    for line in _statements(text):
        script.take(line)
    return script


def _named(line: str) -> dict[str, str]:
    """Returns the flags of a command, and words as `part.name=value`."""
    found: dict[str, str] = {}
    name = ""
    for word in re.sub("[\"']", " ", line).split():
        if word.startswith("--") and len(word) > 2:
            name, _, found[name] = word[2:].replace("nproc_per_node", "nproc-per-node").partition("=")
        elif REDIRECTION.match(word):
            name = ""
        elif match := DOTTED.fullmatch(word):
            name, found[match[1]] = "", match[2]
        elif name:
            found[name] += f" {word}" if found[name] else word
    return found


def _statements(text: str) -> list[str]:
    """Returns the statements of a script: continued lines, quotes and arrays joined, comments removed."""
    text = re.sub(r"(?m)(?:^|(?<=\s))#.*$", "", text.replace("\r", "")).replace("\\\n", " ")
    text = re.sub(r"(\"[^\"\n]*\"|'[^'\n]*')|;", lambda it: it[1] or "\n", text)
    text = re.sub(r"(?m)^[ \t]*(then|do|else)[ \t]+(?=\S)", "\\1\n", text)
    made, quotes = [""], 0
    for line in text.split("\n"):
        made[-1] = f"{made[-1]}\n{line}".strip()
        quotes += line.count('"') - line.count('\\"')
        is_array = re.match(r"(?:export\s+)?\w+\+?=\(", made[-1])
        if quotes % 2 == 0 and not (is_array and not made[-1].endswith(")")):
            made.append("")
    return [line for line in made if line]


class _Script:
    """Variables, commands and notes of a script that is being read."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.values: dict[str, str] = {}
        self.commands: list[str] = []
        self.notes: dict[str, None] = {}
        self._branches: list[tuple[bool, bool, str]] = []  # is it followed, was one, the note of its condition
        self._skipped: list[str] = []
        self._cases: list[tuple[int, str]] = []  # the depth of its branch, and the word
        self._size = 0

    def take(self, line: str) -> None:
        """Takes the next statement."""
        first = line.split(maxsplit=1)[0]
        is_followed = all(one[0] for one in self._branches)
        if self._skipped and first == self._skipped[-1]:
            self._skipped.pop()
        elif first in ENDS:
            self._skipped.append(ENDS[first])
        elif self._skipped:
            return
        elif first == "if":
            holds, note = self._holds(line) if is_followed else (False, "")
            self._branches.append((holds, holds, note))
        elif first in ("elif", "else") and self._branches:
            was = self._branches.pop()[1]
            holds, note = (True, "") if was or first == "else" else self._holds(line)
            self._branches.append((holds and not was, was or holds, note))
        elif first in ("fi", "esac") and self._branches:
            self._branches.pop()
            self._cases = self._cases[: len(self._cases) - (first == "esac")]
        elif first == "case" and len(words := line.split()) > 2:
            self._branches.append((False, not is_followed, ""))
            self._cases.append((len(self._branches), self._expanded(words[1]).strip("\"'")))
        elif self._cases and self._cases[-1][0] == len(self._branches) and (match := PATTERN.match(line)):
            was = self._branches.pop()[1]
            patterns = [one.strip(" \"'") for one in match[1].split("|")]
            holds = not was and any(fnmatchcase(self._cases[-1][1], one) for one in patterns)
            self._branches.append((holds, was or holds, ""))
            if rest := match[2].strip():
                self.take(rest)
        elif is_followed:
            self._statement(line)

    def _holds(self, line: str) -> tuple[bool, str]:
        """Returns whether a condition holds, and the note if it cannot be evaluated."""
        terms = re.split(r"(&&|\|\|)", self._expanded(re.sub(r"^(el)?if\s+|;?\s*then$", "", line)))
        holds = [_compared(term.strip()) for term in terms[::2]]
        if None in holds:
            return True, f"the condition `{line[:60]}` is taken as true"
        result = holds[0]
        for sign, one in zip(terms[1::2], holds[1:], strict=True):
            result = (result and one) if sign == "&&" else (result or one)
        return bool(result), ""

    def _statement(self, line: str) -> None:
        if line.startswith("set -- "):
            words = self._expanded(line.removeprefix("set -- ")).split()
            self.values |= {str(nth): word.strip("\"'") for nth, word in enumerate(words, start=1)}
            return None
        if prefix := PREFIX.fullmatch(line):
            self._statement(prefix[1])
            return self._statement(prefix[2])
        if (match := ASSIGNMENT.fullmatch(line)) is None:
            return self.commands.append(self._expanded(line))
        self.notes |= {note: None for *_, note in self._branches if note}
        name, more, value = match.groups()
        if value[:1] in ("(", '"', "'") and len(value) > 1 and value[-1] in ")\"'":
            value = value[1:-1]
        self.values[name] = f"{self.values.get(name, '')} {self._expanded(value)}" if more else self._expanded(value)

    def _expanded(self, text: str) -> str:
        for _ in range(2):  # a default may be a variable itself
            if max(text.count("$"), len(self._branches)) > MOST or self._size > LONGEST:
                raise InvalidArgument(
                    f"{self.where}: it is longer than any script, variables included: pass arguments alone"
                )
            text = VARIABLE.sub(lambda it: self.values.get(it[1] or it[3]) or it[2] or it[0], text)
            self._size += len(text)
        return ARITHMETIC.sub(lambda it: self._computed(it[1] or it[2]) or it[0], text)

    def _computed(self, text: str) -> str | None:
        """Returns the result of whole numbers and variables; None if one has no value."""
        text = re.sub(r"[A-Za-z_]\w*", lambda it: self.values.get(it[0], it[0]), text)
        if not re.fullmatch(r"[\d\s()+*/%-]{1,100}", text):
            return None
        try:
            return str(result(ast.parse(text.strip().replace("/", "//"), mode="eval").body))
        except (SyntaxError, KeyError, ZeroDivisionError):
            return None


def _compared(term: str) -> bool | None:
    """Returns whether a comparison of texts or of numbers holds; None if it cannot be evaluated."""
    if match := CONDITION.fullmatch(term):
        return (match[1] == match[3]) == (match[2] != "!=")
    if match := EMPTINESS.fullmatch(term):
        return (not match[2] or match[2].startswith("$")) == (match[1] == "-z")
    if match := NUMBERS.fullmatch(term):
        return bool(COMPARISONS[match[2]](int(match[1]), int(match[3])))
    return None


def result(node: ast.AST) -> int:
    """Returns the result of whole numbers; a `KeyError` for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if not isinstance(node, ast.BinOp):
        raise KeyError
    return int(OPERATORS[type(node.op)](result(node.left), result(node.right)))
