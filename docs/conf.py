"""Configuration of the documentation site: Sphinx with MyST pages, docstrings as the API reference, no network."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from numba.core.dispatcher import Dispatcher
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

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
    """Leave out fields that the docstring of their class describes, and what scikit-learn adds to a class."""
    is_alias = (getattr(member, "__doc__", "") or "").startswith("Alias for field number")
    is_metadata = "metadata" in name or re.fullmatch(r"set_\w+_request", name) is not None
    is_kernel = isinstance(member, Dispatcher)  # a default of `Kernels`, which documents its kernels as parameters
    return True if is_alias or is_metadata or is_kernel else None


def _take_constant_docs(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Document a constant by the comment or docstring at its definition, not by the docstring of its class."""
    package, _, constant = name.rpartition(".")
    source = Path(str(import_module(package).__file__)).read_text(encoding="utf-8") if what == "data" else ""
    for module in re.findall(rf"^from (\S+) import {constant} as {constant}$", source, re.MULTILINE):
        lines[:] = ModuleAnalyzer.for_module(module).find_attr_docs()["", constant]


def _name_kernels(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Show compiled functions in a signature by their names."""
    return re.sub(r"CPUDispatcher\(<function (\w+)[^>]*>\)", r"\1", signature or "") or None, returned


def _inline_math(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display_math(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def _shorten_navigation(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """List pages in the sidebar, but not every public name, which would take most of the time to build the site."""
    toctree = context["toctree"]
    context["toctree"] = lambda **options: toctree(**options | {"maxdepth": 1})


def setup(app: Sphinx) -> None:
    """Render formulas as MathML while the site is built, so that pages need neither a script nor a network."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_display_math, None))
    app.connect("html-page-context", _shorten_navigation, priority=400)  # before the theme
    app.connect("include-read", _adapt_included_links)
    app.connect("source-read", _adapt_links)
    app.connect("autodoc-skip-member", _skip_member)
    app.connect("autodoc-process-signature", _name_kernels)
    app.connect("autodoc-process-docstring", _take_constant_docs, priority=400)  # before napoleon
