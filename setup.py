"""Packaging: core dependencies; extras for suites, tests and development."""

import pathlib
import re

import setuptools

_ROOT = pathlib.Path(__file__).parent
# The package itself cannot be imported before its dependencies are installed.
VERSION = re.search(
  r"^__version__ = '(.+)'$",
  (_ROOT / 'disco_rl' / '__init__.py').read_text(encoding='utf-8'),
  re.MULTILINE,
)[1]

# Floors are the oldest versions that the test suite was run with.
CORE = [
  # Used by launch/ and configs/, which run from a checkout.
  'absl-py>=2.1',
  'chex>=0.1.90',
  'dm-env>=1.6',
  'dm-haiku>=0.0.15',
  # On CPUs, 0.10.2 computes some fused products and sums wrong without a word
  # (jax issue 39103), and 0.11.0 crashes in others (39257).
  'jax>=0.10.0,!=0.10.2,!=0.11.0',
  'jinja2>=3.1',
  'lazy_loader>=0.4',
  'matplotlib>=3.8',
  # As absl-py.
  'ml-collections>=1.0',
  'numpy>=2.0',
  'optax>=0.2.5',
  'orbax-checkpoint>=0.11.30',
  'pooch>=1.8',
  'rlax>=0.1.8',
  'scipy>=1.13',
  'tensorboardX>=2.6',
  'tqdm>=4.66',
]
GYMNASIUM = ['gymnasium>=1.1']
# The wheel carries the games; its licence is GPL-2.
ATARI = ['ale-py>=0.12.1', *GYMNASIUM]
# ProcGen also needs Qt 5: apt-get install libqt5gui5. From 1.2.6 on, envpool
# wants Python 3.12.
PROCGEN = ['envpool>=1.2.5', *GYMNASIUM]
# Its wheel holds the game; wants gymnasium 1.2.0.
NETHACK = ['nle>=1.3.0', *GYMNASIUM]
# It holds MinAtar and part of bsuite.
GYMNAX = ['gymnax>=1.0.1']
CRAFTAX = ['craftax>=1.6.1']
# Without numba, a world takes fifteen times as long to make.
CRAFTER = ['crafter>=1.8.3', 'numba>=0.61']
SOKOBAN = ['jumanji>=1.1.2']
ENVIRONMENTS = sorted(
  {*ATARI, *PROCGEN, *NETHACK, *GYMNAX, *CRAFTAX, *CRAFTER, *SOKOBAN}
)
TEST = [
  'distrax>=0.1.7',
  'hypothesis>=6.100',
  'pytest>=8',
  'pytest-xdist>=3.8',
  # Builds the package in a test; environments of Python 3.12 come without it.
  'setuptools>=68',
  *GYMNASIUM,
]
# To run the notebooks of colabs/.
NOTEBOOKS = ['ipykernel>=6.29', 'nbclient>=0.10', 'nbformat>=5.10']
# Equations are converted to MathML while the site is built.
DOCS = [
  'latex2mathml>=3.77',
  'mkdocs>=1.6',
  'mkdocs-material>=9.6',
  'mkdocstrings-python>=1.16',
]
DEV = [
  'import-linter>=2.16',
  'mypy>=1.15',
  'pre-commit>=4',
  'ruff>=0.11',
  *DOCS,
  *NOTEBOOKS,
  *TEST,
]

setuptools.setup(
  name='disco_rl',
  version=VERSION,
  description='Discovering reinforcement learning algorithms, in JAX.',
  long_description=(_ROOT / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  packages=setuptools.find_packages(include=['disco_rl', 'disco_rl.*']),
  package_data={
    'disco_rl': ['py.typed', '**/*.pyi', '**/*.npz', '**/templates/*'],
  },
  python_requires='>=3.11',
  install_requires=CORE,
  extras_require={
    'gymnasium': GYMNASIUM,
    'atari': ATARI,
    'procgen': PROCGEN,
    'nethack': NETHACK,
    'gymnax': GYMNAX,
    'craftax': CRAFTAX,
    'crafter': CRAFTER,
    'sokoban': SOKOBAN,
    'environments': ENVIRONMENTS,
    'docs': DOCS,
    'test': TEST,
    'dev': DEV,
  },
)
