"""Configuration of the documentation site: Sphinx with MyST pages, docstrings as the API reference, no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

import vrtd

project = "vrtd"
author = "The vrtd developers"
project_copyright = author
version = release = vrtd.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_templates"]
templates_path = ["_templates"]
default_role = "py:obj"  # single backticks: a link where the name is documented, code otherwise

myst_enable_extensions = ["dollarmath", "attrs_inline", "colon_fence"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types stand in the docstrings
autodoc_inherit_docstrings = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False  # types are text, not cross-references: "n_features" is not a type
napoleon_custom_sections = [("Attributes", "params_style")]  # so here, too

html_theme = "furo"
html_title = "vrtd"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}

# Pages at the root of the repository, and where the site shows them.
ROOT_PAGES = {
    "README": "index",
    "CHANGELOG": "changelog",
    "CONTRIBUTING": "contributing",
    "ARCHITECTURE": "architecture",
}


def _adapt_included_links(app: Sphinx, path: Path, parent: str, content: list[str]) -> None:
    """Turn links that are relative to the repository's root into links that are relative to this folder."""
    text = re.sub(r"\]\((?!https?:|#|docs/)([^)]+)\)", r"](../\1)", content[0])
    content[0] = re.sub(r"\]\(docs/", "](", text)
    _adapt_links(app, parent, content)


def _adapt_links(app: Sphinx, page: str, content: list[str]) -> None:
    """Turn links to the repository's pages into links to the pages that show them."""
    for name, shown in ROOT_PAGES.items():
        content[0] = re.sub(rf"\]\((?:\.\./)+{name}\.md", f"]({shown}.md", content[0])


def _skip_member(app: Sphinx, kind: str, name: str, member: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of a NamedTuple, which its docstring describes, and what scikit-learn adds to a class."""
    is_alias = (getattr(member, "__doc__", "") or "").startswith("Alias for field number")
    is_metadata = "metadata" in name or re.fullmatch(r"set_\w+_request", name) is not None
    return True if is_alias or is_metadata else None


def _inline_math(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display_math(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Render formulas as MathML while the site is built, so that pages need neither a script nor a network."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_display_math, None))
    app.connect("include-read", _adapt_included_links)
    app.connect("source-read", _adapt_links)
    app.connect("autodoc-skip-member", _skip_member)
