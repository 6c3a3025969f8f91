"""The site works from a folder, without a server or a network: its search too, and nothing asks another host."""

from pathlib import Path
from typing import Any

from mkdocs.utils import get_relative_url

SHIM = "assets/offline-search.js"
COUNTS_STARS = ' data-md-component="source"'  # the theme would ask the repository's host for stars and releases


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The stand-in for a worker comes before the theme's own script, which starts one."""
    script = f'<script src="{get_relative_url(SHIM, page.url)}"></script></head>'
    output = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    return output.replace(COUNTS_STARS, "").replace("</head>", script, 1)


def on_post_build(config: Any, **_: Any) -> None:
    """The search index as a script, which a page from a file (file://) may load."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")
