"""Links of a page to files outside the documentation lead to the repository."""

import re
from typing import Any

OUTSIDE = re.compile(
    r"\]\((?:\.\./)+((?:README|CONTRIBUTING|CHANGELOG|SECURITY)\.md|(?:recipes|benchmarks|fedtailor|tests|examples)\b[^)]*)\)"
)


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    return OUTSIDE.sub(lambda found: f"]({config['repo_url']}/blob/main/{found[1]})", markdown)
