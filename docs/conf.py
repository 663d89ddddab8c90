"""Sphinx: ``sphinx-build -W docs site`` writes the site to the folder ``site``."""

project = "placement-proofs"
author = "The placement-proofs authors"
copyright = "2026, the placement-proofs authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "placement-proofs"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
suppress_warnings = ["misc.highlighting_failure"]
exclude_patterns = ["_build"]
