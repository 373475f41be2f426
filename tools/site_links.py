"""Check the built site: every link inside it leads somewhere, and no page asks another host for anything."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# what a browser fetches by itself; a link in <a> is followed only by the reader
FETCHED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}
NOT_FETCHED_RELATIONS = {"canonical", "prev", "next", "alternate"}


class Page(HTMLParser):
    """The links, the anchors and the fetched addresses of a page.

    Args:
        text: Its HTML.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what one element links to, fetches and is called."""
        given = dict(attributes)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        for key in ("href", "src"):
            value = given.get(key)
            if value is None:
                continue
            self.links.append(value)
            is_relation = given.get("rel") in NOT_FETCHED_RELATIONS
            if (tag, key) in FETCHED and not is_relation:
                self.fetched.append(value)


def find_problem(link: str, page: Path, pages: dict[Path, Page], site: Path) -> str | None:
    """Why a link of a page leads nowhere, or None."""
    parts = urlsplit(link)
    if parts.scheme in ("http", "https"):
        return None if parts.hostname and "." in parts.hostname else "is no address"
    if parts.scheme in ("mailto", "data", "javascript"):
        return None
    base = site if parts.path.startswith("/") else page.parent
    target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else page
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file():
        return "leads to no file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return None if unquote(parts.fragment) == "__skip" else "leads to no such place on its page"
    return None


def check_site(site: Path) -> list[str]:
    """Every problem of a built site, one line each; of another host, only the form of the address counts."""
    site = site.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    problems = [] if pages else [f"{site} holds no page."]
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of the site, wherever that will be
            continue
        name = path.relative_to(site)
        for link in dict.fromkeys(page.links):
            problem = find_problem(link, path, pages, site)
            if problem is not None:
                problems.append(f"{name}: {link} {problem}.")
        foreign = [link for link in page.fetched if urlsplit(link).netloc]
        problems += [f"{name}: {link} is fetched from another host." for link in foreign]
    return problems
