"""The documentation as static HTML in build/site, which needs no network and no server.

    python -m headrace.tools.docs.site [ROOT]

MkDocs does it (extra `docs`) from docs/site.yml, strictly: a link to nowhere is an error. The pages are those of the
repository, where they are; they are put side by side in build/pages first, as MkDocs reads one folder. What a page
links to that is no page (a file of the source, the license) goes along as a page with its text.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDERS = ("docs", "dialects", "frontends", "runtime")
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
SHIM = "https://unpkg.com/iframe-worker/shim"
"""What the plugin `offline` loads; we have it in docs/assets."""
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
FENCE = re.compile(r"^( *)```.*?^\1```", re.S | re.M)


def pages(root: Path) -> list[Path]:
    """The pages, pictures and scripts of the repository, relative to its root."""
    found = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".md", ".svg", ".js")]
    return [Path("README.md"), Path("CHANGELOG.md"), *sorted(path.relative_to(root) for path in found)]


def put_together(root: Path, folder: Path) -> None:
    """Copy the pages to a folder; links to other files of the repository become links to pages with their text."""
    shutil.rmtree(folder, ignore_errors=True)
    others: dict[Path, str] = {}
    for page in pages(root):
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix != ".md":
            shutil.copy(root / page, target)
            continue
        text = (root / page).read_text(encoding="utf-8")
        for linked in _linked(text, page, root):
            others[linked] = f"{linked}.md"
        target.write_text(_relinked(text, page, others), encoding="utf-8")
    for linked, name in others.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (root / linked).read_text(encoding="utf-8")
        language = {".py": "python", ".toml": "toml"}.get(linked.suffix, "text")
        target.write_text(f"# {linked}\n\n````{language}\n{text}\n````\n", encoding="utf-8")


def _linked(text: str, page: Path, root: Path) -> Iterator[Path]:
    """The files of the repository that a page links to and that are no pages."""
    for match in LINK.finditer(FENCE.sub("", text)):
        path = Path(os.path.normpath(page.parent / match[2]))
        if "://" not in match[2] and path.suffix not in (".md", ".svg") and (root / path).is_file():
            yield path


def _relinked(text: str, page: Path, others: dict[Path, str]) -> str:
    def link(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(page.parent / match[2]))
        return f"[{match[1]}]({match[2]}.md)" if path in others else match[0]

    return LINK.sub(link, text)


def build(root: Path) -> Path:
    """Write the site; the folder that holds it. Ends the process with the reasons when a page is not right."""
    builder: Any = import_module("mkdocs.commands.build")
    config: Any = import_module("mkdocs.config")
    folder, target = root / "build" / "pages", root / "build" / "site"
    put_together(root, folder)
    builder.build(config.load_config(str(root / "docs" / "site.yml"), docs_dir=str(folder), site_dir=str(target)))
    for page in target.rglob("*.html"):
        local = os.path.relpath(target / "docs" / "assets" / "iframe-worker.js", page.parent)
        page.write_text(page.read_text(encoding="utf-8").replace(SHIM, local), encoding="utf-8")
    return target


def loaded(site: Path) -> list[str]:
    """What the pages of a site load from elsewhere, which should be nothing."""
    texts = (page.read_text(encoding="utf-8") for page in site.rglob("*.html"))
    return sorted({url for text in texts for url in LOADED.findall(text)})


def main() -> int:
    """Entry point."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    logging.basicConfig(format="docs: %(message)s", level=logging.WARNING)
    site = build(root)
    for url in loaded(site):
        print(f"docs: the site loads {url}")
    print(f"docs: wrote {os.path.relpath(site)}/index.html; open it in a browser")
    return 1 if loaded(site) else 0


if __name__ == "__main__":
    sys.exit(main())
