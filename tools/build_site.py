"""Build the documentation as a site: `make docs`."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

from footplate import Seq2SeqTrainingArguments
from messages import list_messages, write_messages
from reference import group_names, home_of, is_described, write_reference
from site_links import check_site

ROOT = Path(__file__).parents[1]
MESSAGES_LINK = "[Every message](messages.md)"  # the page is made here, so docs/ cannot link to it
FENCE = re.compile(r"(^```.*?^```$)", flags=re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(?<!`)`(\w+)(?:[=(][^`]*)?`")
LINK = re.compile(r"(!?\[[^\]]*\]\([^)]*\))")
OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)]*)\)")


def find_targets() -> dict[str, str]:
    """Where each setting and each public name is described on the site."""
    import footplate

    settings = [field.name for field in dataclasses.fields(Seq2SeqTrainingArguments)]
    targets = {name: f"reference/settings.md#{name}" for name in settings}
    for subject, names in group_names().items():
        for name in filter(is_described, names):
            anchor = f"{home_of(name)}.{getattr(footplate, name).__qualname__}"
            targets[name] = f"reference/{subject.slug}.md#{anchor}"
    return targets


def link_names(text: str, targets: dict[str, str]) -> str:
    """A page whose first mention of each setting and public name, outside of code, links to the reference."""
    linked: set[str] = set()

    def link(match: re.Match[str]) -> str:
        name = match[1]
        if name not in targets or name in linked:
            return match[0]
        linked.add(name)
        return f"[{match[0]}]({targets[name]})"

    def link_line(line: str) -> str:
        parts = [line] if line.startswith("#") else LINK.split(line)
        return "".join(part if part.startswith(("#", "[", "![")) else CODE.sub(link, part) for part in parts)

    pieces = FENCE.split(text)
    return "".join(
        piece if piece.startswith("```") else "\n".join(map(link_line, piece.split("\n"))) for piece in pieces
    )


def name_files_outside(text: str) -> str:
    """A page whose links to files outside of docs/, which the site does not have, are their paths."""
    return OUTSIDE.sub(
        lambda found: f"`{found[2]}`" if found[1] == found[2] else f"{found[1]}: `{found[2]}`", text
    )


def write_pages(folder: Path) -> list[Path]:
    """Put the pages of docs/ and those made from the source into a folder, for zensical to read."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md", "notebooks"))
    targets = find_targets()
    settings = {field.name for field in dataclasses.fields(Seq2SeqTrainingArguments)}
    pages = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
    pages = {name: link_names(name_files_outside(text), targets) for name, text in pages.items()}
    pages["troubleshooting.md"] = pages["troubleshooting.md"].replace("*Every message*", MESSAGES_LINK)
    made = {"messages.md": write_messages(list_messages(), settings), **write_reference()}
    for name, text in {**pages, **made}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in (*pages, *made)]


def build_site(root: Path = ROOT) -> list[str]:
    """Build the site, and say what is wrong: dead links, requests to other hosts, a build that failed.

    Args:
        root: Where zensical.toml and src/ are, and where site/ goes.
    """
    shutil.rmtree(root / "site", ignore_errors=True)
    write_pages(root / "build" / "pages")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        return [
            f"zensical ended with {done.returncode}:",
            *done.stdout.splitlines(),
            *done.stderr.splitlines(),
        ]
    return check_site(root / "site")


if __name__ == "__main__":
    problems = build_site()
    print(
        "\n".join(problems) or "site/ is built, and every link in it leads somewhere. Open site/index.html."
    )
    sys.exit(bool(problems))
