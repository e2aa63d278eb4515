"""A hook of mkdocs.yml: the site holds the pages of the repository and the files that they link to, at their paths.

mkdocs reads one folder, ``docs/``; README.md and others lie beside it, and links lead from one to the other. So every
page keeps its path in the repository, as on a forge, and README.md is the first page.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "data/*/README.md", "docs/**/*.md")
"""The pages of the site. What they link to is a file of it."""

_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


def linked(page: str) -> list[str]:
    """Returns the files of the repository that a page links to."""
    targets = _LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    paths = [posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) for target in targets]
    return [path for path in paths if not path.startswith("..") and (ROOT / path).is_file()]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of ``docs/`` by those of the repository; the theme's own stay."""
    pages = [path.relative_to(ROOT).as_posix() for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    assets = [path for path in map(str, [*config.extra_css, *config.extra_javascript]) if (ROOT / path).is_file()]
    paths = dict.fromkeys([*pages, *assets, *(path for page in pages for path in linked(page))])
    theirs = [file for file in files if file.src_dir != config.docs_dir]
    return Files([*theirs, *(File(path, str(ROOT), config.site_dir, config.use_directory_urls) for path in paths)])
