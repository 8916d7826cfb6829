"""What a test reads of a page: its tags, its text, and text that tries to become markup."""

from html.parser import HTMLParser

HOSTILE = (
    "</style><script>alert(1)</script>",
    '" onload="x',
    "' onload='x",
    "javascript:alert(1)",
    "//elsewhere.example/x",
    "--><img src=x onerror=y><!--",
    "]]>&lt;script&gt;</text></svg>",
)


IMAGE = "data:image/svg+xml;base64,"


class Outline(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def shape(self):
        return [(tag, list(attributes)) for tag, attributes in self.tags]

    def having(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]
