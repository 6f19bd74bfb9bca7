"""The pages of the site, before MkDocs turns them into HTML."""

from __future__ import annotations

import os
import re
from pathlib import Path

from headrace.tools.docs import site

ROOT = Path(__file__).parents[3]


def test_every_page_is_in_the_navigation(tmp_path: Path) -> None:
    listed = set(re.findall(r"[\w./-]+\.md", (ROOT / "docs" / "site.yml").read_text(encoding="utf-8")))
    assert {str(page) for page in site.pages(ROOT) if page.suffix == ".md"} <= listed


def test_links_lead_to_pages_also_where_they_are_files_of_the_source(tmp_path: Path) -> None:
    site.put_together(ROOT, tmp_path)
    links = 0
    for page in tmp_path.rglob("*.md"):
        if page.name.endswith((".py.md", ".toml.md")):
            continue
        for match in site.LINK.finditer(site.FENCE.sub("", page.read_text(encoding="utf-8"))):
            if "://" not in match[2]:
                assert Path(os.path.normpath(page.parent / match[2])).exists(), f"{page}: {match[0]}"
                links += 1
    assert links > 50
    assert (tmp_path / "LICENSE.md").read_text(encoding="utf-8").startswith("# LICENSE")


def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://x.org">x</a><script async src="https://cdn.org/a.js"></script><link rel=x href=//b.org/b.css>'
    )
    assert site.loaded(tmp_path) == ["//b.org/b.css", "https://cdn.org/a.js"]
