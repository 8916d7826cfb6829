"""What a test reads of a page: its tags, its text, its scripts, and text that tries to become markup."""

import re
from base64 import b64encode
from hashlib import sha256
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
    """Tags with their attributes, and all text that is shown."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.cdata_elem is None:  # not in a script or a style
            self.text += data

    def shape(self):
        return [(tag, list(attributes)) for tag, attributes in self.tags]

    def having(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]


def check_scripts(text):
    """Check that a page loads nothing, and that its policy allows the one script that is not data, by its digest."""
    outline = Outline(text)
    assert not {tag for tag, _ in outline.tags} & {"iframe", "object", "embed", "link", "base", "form"}
    assert not [name for _, attributes in outline.tags for name in attributes if name.startswith("on")]
    scripts = [attributes for tag, attributes in outline.tags if tag == "script"]
    assert [attributes for attributes in scripts if attributes != {"type": "application/json"}] == [{}]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = (each["content"] for _, each in outline.tags if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith(
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
    )
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", script)
