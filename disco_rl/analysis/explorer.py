"""A page on which a rule can be tried by hand, in a browser.

The page contains the rule's weights and a program that computes its targets for
a trajectory, whose rewards, values, policies and ends can be dragged. It needs
no server and no network.
"""

import base64
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
  rule: base.UpdateRule,
  rule_params: types.Params,
  name: str,
  footer: str = '',
) -> None:
  """Writes the page of a rule, atomically.

  Args:
    path: The file, ending in '.html'.
    rule: A discovered rule.
    rule_params: The parameters of the rule (eta).
    name: The rule's name, for the title.
    footer: A sentence below the pictures, such as where the rule comes from.

  Raises:
    ValueError: The rule is hand-designed, or has a transformer, which the page
      does not support.
  """
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
  content = {
    'title': html.escape(f'Try the rule {name}'),
    'prediction_size': f'{rule.network.prediction_size}',
    'footer': html.escape(footer),
    'program': (_TEMPLATES / 'rule.js').read_text(encoding='utf-8'),
    # The end tag of a script within a text would end the script.
    'rule': json.dumps(_inlined(rule, rule_params)).replace('<', r'\u003c'),
  }
  template = (_TEMPLATES / 'explore.html').read_text(encoding='utf-8')
  page = re.sub(r'{{ (\w+) }}', lambda place: content[place[1]], template)
  with files.replacing(path) as temporary:
    temporary.write_text(page, encoding='utf-8')


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
  settings = {
    'discount': rule.discount,
    'lambda': rule.lambda_,
    'rewardScale': rule.reward_scale,
    'momentsDecay': rule.moments_decay,
    'hasQ': rule.network.has_q,
  }
  return {'weights': weights, 'settings': settings}
