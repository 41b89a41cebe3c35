"""For tools that look for this file; pyproject.toml describes the package."""

import setuptools

setuptools.setup()
