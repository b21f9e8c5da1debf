"""Sphinx configuration: MyST pages, and the Python API from the docstrings.

The build needs no network.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from hermes_trio import __version__

project = "hermes_trio"
project_copyright = "the hermes_trio authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib_trio"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"hermes_trio {release}"
html_copy_source = False
