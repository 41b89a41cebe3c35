"""A page on which rules can be tried by hand, in a browser.

The page contains the weights of rules and a program that computes their targets
for a trajectory, whose rewards, values, policies and ends can be dragged. It
also reads rules from files of the reader. It needs no server and no network.
"""

import base64
from collections.abc import Mapping
import html
import json
import pathlib
import re

import numpy as np

from disco_rl import types
from disco_rl.runtime import files
from disco_rl.update_rules import base
from disco_rl.update_rules import disco

_TEMPLATES = pathlib.Path(__file__).parent / 'templates'


def write(
  path: files.PathLike,
  rules: Mapping[str, tuple[base.UpdateRule, types.Params]],
  footer: str = '',
  home: str = '',
) -> None:
  """Writes the page of rules among which the reader chooses, atomically.

  Args:
    path: The file, ending in '.html'.
    rules: Discovered rules and their parameters (eta) by name; the page begins
      with the first.
    footer: A sentence below the pictures, such as where the rules come from.
    home: The address of a page to which the page links; '': none.

  Raises:
    ValueError: A rule is hand-designed, or has a transformer, which the page
      does not support.
  """
  inlined = {
    name: _inlined(_checked(name, rule), rule_params)
    for name, (rule, rule_params) in rules.items()
  }
  programs = ('npz.js', 'rule.js')
  content = {
    'footer': html.escape(footer),
    'home': f'<a href="{html.escape(home)}">disco_rl</a>' if home else '',
    'program': '\n'.join(
      (_TEMPLATES / name).read_text(encoding='utf-8') for name in programs
    ),
    'rules': _script(inlined),
    'defaults': _script(_settings(disco.Disco())),
  }
  template = (_TEMPLATES / 'explore.html').read_text(encoding='utf-8')
  page = re.sub(r'{{ (\w+) }}', lambda place: content[place[1]], template)
  with files.replacing(path) as temporary:
    temporary.write_text(page, encoding='utf-8')


def _checked(name: str, rule: base.UpdateRule) -> disco.Disco:
  """Returns a rule; raises ValueError if the page does not support it."""
  if not isinstance(rule, disco.Disco):
    raise ValueError(
      f'{name} is hand-designed: it has no meta-network whose targets could be '
      'tried. Choose a discovered rule.'
    )
  if rule.network.transformer_layers:
    raise ValueError(
      f'{name} has a transformer (rule_transformer_layers='
      f'{rule.network.transformer_layers}); the page supports only LSTMs.'
    )
  return rule


def _script(value: object) -> str:
  """Returns a value as a part of a script."""
  # The end tag of a script within a text would end the script.
  return json.dumps(value).replace('<', r'\u003c')


def _inlined(rule: disco.Disco, rule_params: types.Params) -> dict[str, object]:
  """Returns the weights and the settings that the program reads."""
  weights = {
    f'{module}/{name}': {
      'shape': value.shape,
      'data': base64.b64encode(np.asarray(value, '<f4').tobytes()).decode(),
    }
    for module, leaves in rule_params.items()
    for name, value in leaves.items()
  }
  return {'weights': weights, 'settings': _settings(rule)}


def _settings(rule: disco.Disco) -> dict[str, float | bool]:
  """Returns the settings by the names that the program gives them."""
  return {
    'discount': rule.discount,
    'lambda': rule.lambda_,
    'rewardScale': rule.reward_scale,
    'momentsDecay': rule.moments_decay,
    'hasQ': rule.network.has_q,
  }
