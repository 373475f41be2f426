"""Every error and warning of footplate, read from its source, and the page of the site that lists them."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from subjects import Subject, find_subject

SOURCE = Path(__file__).parents[1] / "src" / "footplate"
FIELD = "…"  # stands for what a message fills in
LOUD = re.compile(
    r"(^|[._])(warn|warning|warn_once|_warn_once|_say|_describe_generation)$|\.(error|critical)$|^logger\.log$"
)
LOGGED = ("warning", "error in the log")
MIN_WORDS = 3  # shorter strings in a function are keys and names, not sentences


class Message(NamedTuple):
    """One thing that footplate may say.

    Args:
        subject: The heading it belongs under.
        kind: The exception's class, or "warning".
        text: Its words, with `…` for what is filled in.
    """

    subject: Subject
    kind: str
    text: str


def read_text(node: ast.expr) -> str | None:
    """The fixed words of a string, of an f-string, or of strings joined by `+` and `%`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(read_text(part) or FIELD for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        left = read_text(node.left) or FIELD
        return left if isinstance(node.op, ast.Mod) else left + (read_text(node.right) or FIELD)
    return None


def tidy(text: str) -> str:
    """A message on one line, with one sign for each thing that is filled in."""
    text = re.sub(r"%[-+.\d]*[sdrfgi]", FIELD, text)
    return re.sub(rf"({FIELD}\s*)+{FIELD}", FIELD, " ".join(text.split()))


def is_sentence(text: str) -> bool:
    """Whether a string is something to say, and not a name, a key or a format."""
    is_pattern = "\\" in text  # a regular expression
    return not is_pattern and sum(bool(re.search("[A-Za-z]{2}", word)) for word in text.split()) >= MIN_WORDS


def list_texts(node: ast.AST) -> Iterator[str]:
    """Every sentence in a piece of code, each whole and docstrings left out."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    text = read_text(node) if isinstance(node, ast.expr) else None
    if text is not None and is_sentence(text):
        yield tidy(text)
    elif not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from list_texts(child)


class Package:
    """The functions of footplate by name, to follow a message to where its words are.

    Args:
        folder: Where its sources are.
    """

    def __init__(self, folder: Path = SOURCE) -> None:
        self.modules = {
            ".".join(("footplate", *path.relative_to(folder).with_suffix("").parts)): ast.parse(
                path.read_text(encoding="utf-8")
            )
            for path in sorted(folder.rglob("*.py"))
        }
        self.functions: dict[str, dict[str, ast.FunctionDef]] = {}  # by name and module
        self.constants: dict[str, list[ast.AST]] = {}
        for module, tree in self.modules.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    self.functions.setdefault(node.name, {})[module] = node
            for statement in tree.body:
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    self.constants.setdefault(statement.targets[0].id, []).append(statement.value)

    def find_functions(self, name: str, module: str) -> list[ast.FunctionDef]:
        """The functions of a name: that of this module if it says something, else those of all."""
        found = self.functions.get(name, {})
        own = found.get(module)
        return [own] if own is not None and any(list_texts(own)) else list(found.values())

    def find_words(self, said: list[ast.expr], around: ast.AST | None, module: str) -> list[str]:
        """The sentences that an exception or a warning can consist of.

        Args:
            said: The exception or the call.
            around: The function around it, whose own sentences are taken where the arguments hold none.
            module: Where this is said.
        """
        said = [*said, *find_assigned(said, around)]
        found = [text for argument in said for text in list_texts(argument)]
        for node in (node for argument in said for node in ast.walk(argument)):
            homes: list[ast.AST] = []
            if isinstance(node, ast.Call):
                homes = list(self.find_functions(name_of(node), module))
            elif name_of(node).isupper():
                homes = self.constants.get(name_of(node), [])
            found += [text for home in homes for text in list_texts(home)]
        if not found and around is not None:
            found = list(list_texts(around))
        if not found:  # a message of one or two words is still a message
            arguments = [part for call in said if isinstance(call, ast.Call) for part in call.args]
            texts = [tidy(text) for text in map(read_text, arguments) if text]
            found = [text for text in texts if re.search("[A-Za-z]{2}", text)]
        return found


def find_assigned(said: list[ast.expr], around: ast.AST | None) -> list[ast.expr]:
    """What the names in a message were set to, in the function around it."""
    names = {node.id for part in said for node in ast.walk(part) if isinstance(node, ast.Name)}
    return [
        node.value
        for node in (ast.walk(around) if around is not None else ())
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in names
    ]


def name_of(node: ast.AST) -> str:
    """The last part of a called function's or a constant's name, if this is one."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def list_speakers(tree: ast.Module) -> Iterator[tuple[str, list[ast.expr], ast.AST | None, int]]:
    """Every `raise` and every warning: kind, arguments, the function around it, line."""
    todo: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
    while todo:
        node, around = todo.pop()
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield name_of(node.exc.func) or "error", [node.exc], around, node.lineno
        elif isinstance(node, ast.Call) and LOUD.search(ast.unparse(node.func)):
            is_error = name_of(node.func) in ("error", "critical")
            yield LOGGED[is_error], [node], around, node.lineno
        inside = node if isinstance(node, ast.FunctionDef) else around
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]


def list_messages(folder: Path = SOURCE) -> list[Message]:
    """Everything that footplate may say, each once, by subject and in alphabetical order."""
    package = Package(folder)
    kinds: dict[tuple[Subject, str], set[str]] = {}
    for module, tree in package.modules.items():
        for kind, said, around, _ in list_speakers(tree):
            for helper in package.find_functions(kind, module):
                kind = ast.unparse(helper.returns) if helper.returns is not None else kind
            for text in package.find_words(said, around, module):
                kinds.setdefault((find_subject(module), text), set()).add(kind)
    found = [Message(subject, name_kinds(names), text) for (subject, text), names in kinds.items()]
    return sorted(found, key=lambda message: (message.subject.title, message.text.lower()))


def name_kinds(names: set[str]) -> str:
    """How one message may come: as these exceptions, or as a warning; a helper's name says nothing."""
    known = sorted(name for name in names if name[:1].isupper() or name in LOGGED)
    return " or ".join(known) or "error"


def matches(message: Message, said: str) -> bool:
    """Whether these words, as a user sees them, are this message or contain it."""
    parts = [re.escape(part) for part in message.text.split(FIELD)]
    return bool(re.search(".*?".join(parts), " ".join(said.split()), flags=re.DOTALL))


def write_messages(messages: list[Message], settings: set[str]) -> str:
    """The page of all messages, with a link to each setting that one names."""
    lines = [
        "# Every message",
        "",
        f"{len(messages)} errors and warnings, by subject; `{FIELD}` is what a run fills in.",
    ]
    lines += ["Search this page for words of yours that are no name or number.", ""]
    subject = None
    for message in messages:
        if message.subject != subject:
            subject = message.subject
            lines += [f"## {subject.title}", ""]
        named = sorted(set(re.findall(r"\w+", message.text)) & settings)
        links = ", ".join(
            f'<a href="reference/settings.html#{name}"><code>{name}</code></a>' for name in named
        )
        end = f"<br>Settings: {links}</p>" if links else "</p>"
        lines += [
            f'<p class="message"><em>{html.escape(message.kind)}</em> {html.escape(message.text)}{end}',
            "",
        ]
    return "\n".join(lines)
