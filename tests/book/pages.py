"""Reading pages back in tests."""

from html.parser import HTMLParser


class _Images(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.found.append({"alt": None, "src": "", **dict(attributes)})


def images(html: str) -> list[dict[str, str | None]]:
    """The attributes of every image of a page, in order."""
    parser = _Images()
    parser.feed(html)
    return parser.found
