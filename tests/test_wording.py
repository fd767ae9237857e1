"""Wording: plain technical English in docstrings, comments and messages, and names that a newcomer guesses."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("src/pasto", "clients/python/pasto_sdk", "research/pasto_research")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
CHECKED_WORDS = ROOT / "tests/test_wording.py"
TESTS = sorted({*(ROOT / "tests").rglob("*.py")} - {CHECKED_WORDS})
"""Every test, except this file: it lists the words, with examples of wrong texts."""
TOOLS = sorted(path for folder in ("examples", "tools") for path in (ROOT / folder).rglob("*.py"))
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

WORDS = (
    r"told|tells?|telling|said|says|believed|beside|whoever|whatever|whichever|nobody|anybody|somebody|anew|dealt|ripe"
    r"|let go|lets go|books|desk|doors?|house|rooms?|crying wolf|for himself|looks? at it|himself"
)
WORD = re.compile(rf"(?<![\w.`/])(?:{WORDS})(?![\w(`])", re.IGNORECASE)
NAME_WORD = re.compile(rf"(?:^|_)(?:{WORDS})(?=_|$)", re.IGNORECASE)
ASK_TELL = re.compile(r"ask(?:\(\))?(?:/| and |, |_and_)tell|ask-and-tell|`tell|tell\\?\(", re.IGNORECASE)
QUESTION = re.compile(r"(?:What|How|Whether|Where|Who|When|Which|Why)\b")
ARTICLE = re.compile(r"(?:The|A|An|This|That|Its|Whose)\b")
NOT_A_VERB = re.compile(r"(?:[^A-Z]|\w*(?:[^s]s|ing|tion)\b)")
"""First words of a function's docstring that are a noun, a participle, a third person or a formula."""
NAMES = frozenset({"told", "said", "believed", "anew", "kept", "shown", "seen", "whole", "stands", "deed", "deeds"})
"""Identifiers that say nothing about what they hold."""
STORED_NAMES = frozenset({("src/pasto/report/records.py", "seen"), ("src/pasto/report/sections.py", "seen")})
"""Names of fields in stored JSON, by file: stores of earlier versions have them."""
NOT_A_NOUN = re.compile(r"(?:ed|ing|able|ful|ous|est|ous)$")
NOUNS = frozenset(
    {
        "Setting",
        "Accounting",
        "Warning",
        "Timing",
        "Ranking",
        "Feed",
        "Speed",
        "Seed",
        "Table",
        "Variable",
        "String",
        "Test",
        "Request",
        "Interest",
    }
)
"""Last words of class names that end like a participle or an adjective, and are nouns."""


ALLOWED_IN_PAGES = {"docs/paper.md": frozenset({"books"})}
"""Words that a page uses in their real sense, by page."""
CODE_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
CODE_SPAN = re.compile(r"(`+).+?\1", re.DOTALL)
LINK_TARGET = re.compile(r"\]\([^)\s]*\)")
PYTHON_EXAMPLE = re.compile(r"^ *>>>.*?\n *\n", re.DOTALL | re.MULTILINE)


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield comments and string literals that hold words, with their lines; code in examples is left out."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for number, line in enumerate(node.value.splitlines()):
                if not line.lstrip().startswith((">>>", "...")):
                    yield node.lineno + number, line


def is_property(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any("property" in ast.unparse(decorator) for decorator in decorators)


def word_problems(path: Path) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {match.group()!r} in {text.strip()!r}"
        for line, text in prose(path)
        if (match := WORD.search(ASK_TELL.sub("", text)))
    ]


def docstring_problems(path: Path) -> list[str]:
    found = []
    for node, text in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node)
        if QUESTION.match(text) or (is_function and (ARTICLE.match(text) or NOT_A_VERB.match(text))):
            found.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]!r}")
    return found


def name_problems(path: Path) -> list[str]:
    source = path.read_text(encoding="utf-8")
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_stored = (path.relative_to(ROOT).as_posix(), token.string) in STORED_NAMES
        if token.type == tokenize.NAME and token.string in NAMES and not is_stored:
            found.append(f"{path.relative_to(ROOT)}:{token.start[0]}: a name that says nothing: {token.string!r}")
    return [*found, *class_problems(path)]


def class_problems(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            last = re.findall(r"[A-Z][a-z0-9]*", node.name)[-1:] or [node.name]
            if NOT_A_NOUN.search(last[0]) and last[0] not in NOUNS:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: class {node.name} must end in a noun")
    return found


def given_name_problems(path: Path) -> list[str]:
    """Return names that a test gives to values, parameters and functions, and that say nothing about them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    given = [
        *((node.lineno, node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)),
        *((node.lineno, node.arg) for node in ast.walk(tree) if isinstance(node, ast.arg)),
        *((node.lineno, node.name) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)),
    ]
    return [
        f"{path.relative_to(ROOT)}:{line}: {name!r}"
        for line, name in given
        if name in NAMES or NAME_WORD.search(ASK_TELL.sub("", name))
    ]


def blank_code(page: str) -> str:
    """Replace code and link targets of a page by spaces; lines keep their numbers."""
    for code in (CODE_BLOCK, PYTHON_EXAMPLE, CODE_SPAN, LINK_TARGET):
        page = code.sub(lambda match: re.sub(r"\S", " ", match.group()), page)
    return page


def page_problems(path: Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    allowed = ALLOWED_IN_PAGES.get(name, frozenset())
    text = ASK_TELL.sub("", path.read_text(encoding="utf-8"))
    return [
        f"{name}:{number}: {match.group()!r} in {line.strip()!r}"
        for number, line in enumerate(blank_code(text).splitlines(), start=1)
        for match in WORD.finditer(line)
        if match.group().lower() not in allowed
    ]


@pytest.mark.parametrize("check", [word_problems, docstring_problems, name_problems])
def test_code_is_plain_english(check: object) -> None:
    assert callable(check)
    problems = [problem for path in [*FILES, *TOOLS] for problem in check(path)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("check", [word_problems, docstring_problems, class_problems, given_name_problems])
def test_tests_are_plain_english(check: object) -> None:
    assert callable(check)
    problems = [problem for path in TESTS for problem in check(path)]
    assert not problems, "\n".join(problems)


def test_pages_are_plain_english() -> None:
    problems = [problem for path in PAGES for problem in page_problems(path)]
    assert not problems, "\n".join(problems)


def test_the_checks_find_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "bad.py"
    path.write_text(
        'class Believed:\n    """What is told."""\n\n\n'
        'def f(told: int):\n    """The number."""\n    free_room = 1\n    return told\n\n\n'
        'def g():\n    """Numbers of rounds."""\n'
    )
    assert len(word_problems(path)) == 1
    assert len(docstring_problems(path)) == 3
    assert len(name_problems(path)) == 3
    assert len(class_problems(path)) == 1
    names = [problem.rpartition(" ")[2] for problem in given_name_problems(path)]
    assert names == ["'free_room'", "'told'", "'told'", "'Believed'"]
    page = tmp_path / "page.md"
    page.write_text(
        "Nobody is told.\n\n```text\ntold\n```\n\n`told` and ask and tell, then [a page](books.md)\n\nsaid\n"
    )
    assert [problem.split(" in ")[0] for problem in page_problems(page)] == [
        "page.md:1: 'Nobody'",
        "page.md:1: 'told'",
        "page.md:9: 'said'",
    ]


if __name__ == "__main__":
    import sys

    for path in [*FILES, *TOOLS, *TESTS]:
        if path.relative_to(ROOT).as_posix().startswith(tuple(sys.argv[1:]) or ("",)):
            names = [*class_problems(path), *given_name_problems(path)] if path in TESTS else name_problems(path)
            for problem in [*word_problems(path), *docstring_problems(path), *names]:
                sys.stdout.write(problem + "\n")
    for path in PAGES:
        if path.relative_to(ROOT).as_posix().startswith(tuple(sys.argv[1:]) or ("",)):
            for problem in page_problems(path):
                sys.stdout.write(problem + "\n")
