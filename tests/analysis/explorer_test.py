"""The page's numbers are those of the rule, in a browser."""

import dataclasses
import html
import json
import pathlib
import re
import shutil
import subprocess
from typing import Any
from urllib import parse

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.analysis import explorer
from disco_rl.analysis import hand_made
from disco_rl.analysis import scenes
from disco_rl.evaluation import pages
from disco_rl.maths import value_targets
from disco_rl.networks import meta_network
from disco_rl.update_rules import base
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry
from disco_rl.update_rules import weights

_LENGTH = 6


def _scene(rule: disco.Disco, seed: int) -> scenes.Scene:
  """A trajectory with two ends, whose policies and values differ by state."""
  rng = np.random.default_rng(seed)
  actions = rng.integers(2, size=_LENGTH).tolist()
  rewards = rng.uniform(-1, 1, _LENGTH).tolist()
  ends = [t in (2, _LENGTH - 1) for t in range(_LENGTH)]
  scene = hand_made.scene(rule, actions, rewards, ends, [0.0, 0.0])
  outputs = dict(scene.outputs)
  shape = (_LENGTH + 1, 1, 2)
  outputs['logits'] = jnp.asarray(rng.normal(size=shape), jnp.float32)
  if 'q' in outputs:
    q = rng.normal(size=(*shape, rule.num_bins))
    outputs['q'] = jnp.asarray(q, jnp.float32)
  return scenes.Scene(
    dataclasses.replace(scene.rollout, logits=outputs['logits']),
    outputs,
    rule.init_state(scenes.as_params(outputs)),
  )


def _as_json(rule: disco.Disco, scene: scenes.Scene, times: int) -> str:
  """The scene as the page's address takes it."""
  q = jnp.zeros((_LENGTH + 1, 2))
  if 'q' in scene.outputs:
    logits = scene.outputs['q'][:, 0]
    q = value_targets.values_from_logits(logits, rule.max_abs_value)
  now = {
    'reward': scene.rollout.reward[:, 0].tolist(),
    'end': scene.rollout.is_terminal[:, 0].tolist(),
    'action': scene.rollout.action[:, 0].tolist(),
    'policy': jax.nn.softmax(scene.outputs['logits'][:, 0]).tolist(),
    'q': q.tolist(),
  }
  return json.dumps({'now': now, 'times': times})


def _shown(page: pathlib.Path, scene: str) -> dict[str, list[list[float]]]:
  """The numbers that the page computes in headless Chromium."""
  browser = shutil.which('chromium') or shutil.which('google-chrome')
  if browser is None:
    pytest.skip('no Chromium is installed')
  command = [browser, '--headless', '--no-sandbox', '--disable-gpu']
  ended = subprocess.run(
    [*command, '--dump-dom', f'{page.as_uri()}#{parse.quote(scene)}'],
    capture_output=True,
    text=True,
    timeout=120,
  )
  found = re.search(r'id="numbers">(.*?)</script>', ended.stdout)
  assert found, ended.stderr
  return json.loads(html.unescape(found[1]))


def _variant() -> tuple[base.UpdateRule, types.Params]:
  """A rule without y, z and the meta-RNN, with five blocks per action."""
  network = meta_network.MetaNetworkConfig(
    prediction_size=0,
    meta_rnn_size=0,
    lstm_size=8,
    policy_target_channels=5 * (8,),
  )
  rule = disco.Disco(network=network, num_bins=11, max_abs_value=2.0)
  params = meta_network.init(jax.random.key(1), network)
  return rule, jax.tree.map(lambda x: 2 * x, params)  # Each block shrinks pi.


@pytest.mark.parametrize('times', [0, 3])
@pytest.mark.parametrize(
  'name', ['general', pytest.param('variant', marks=pytest.mark.slow)]
)
def test_the_page_computes_the_targets(
  name: str, times: int, tmp_path: pathlib.Path
) -> None:
  rule, params = _variant() if name == 'variant' else registry.load(name)
  assert isinstance(rule, disco.Disco)
  explorer.write(tmp_path / 'rule.html', {name: (rule, params)})
  scene = _scene(rule, seed=times)
  shown = _shown(tmp_path / 'rule.html', _as_json(rule, scene, times))

  settled = scenes.settle(rule, params, scene, times)
  apply_rule = jax.jit(scenes.apply_rule, static_argnums=0)
  found, state = apply_rule(rule, params, settled)
  for target in ('pi', 'y', 'z'):
    expected = getattr(found, target)
    if expected is None:
      assert shown[target] == []
      continue
    np.testing.assert_allclose(
      jax.nn.softmax(jnp.asarray(shown[target])),
      jax.nn.softmax(expected[:, 0]),
      atol=1e-4,
    )
    # The test is not about a rule that says nothing.
    assert np.ptp(expected) > 0.01
  assert found.q is not None
  np.testing.assert_allclose(shown['returns'], found.q[:, 0], atol=1e-4)
  if state.meta_rnn is not None:
    np.testing.assert_allclose(
      shown['hidden'], state.meta_rnn.hidden, atol=1e-4
    )


@pytest.mark.parametrize('name', ['general', 'from_nothing'])
def test_the_page_has_a_choice_of_rules(
  name: str, tmp_path: pathlib.Path
) -> None:
  rules = {x: registry.load(x) for x in ('general', 'from_nothing')}
  explorer.write(tmp_path / 'rules.html', rules, home='index.html')
  assert '<a href="index.html">' in (tmp_path / 'rules.html').read_text()
  rule, params = rules[name]
  assert isinstance(rule, disco.Disco)
  scene = _scene(rule, seed=0)
  asked = {**json.loads(_as_json(rule, scene, 0)), 'rule': name}
  shown = _shown(tmp_path / 'rules.html', json.dumps(asked))
  found, _ = jax.jit(scenes.apply_rule, static_argnums=0)(rule, params, scene)
  np.testing.assert_allclose(
    jax.nn.softmax(jnp.asarray(shown['pi'])),
    jax.nn.softmax(found.pi[:, 0]),
    atol=1e-4,
  )


@pytest.mark.parametrize('is_compressed', [False, True])
def test_the_page_reads_the_files_of_rules(
  is_compressed: bool, tmp_path: pathlib.Path
) -> None:
  node = shutil.which('node')
  if node is None:
    pytest.skip('Node.js is not installed')
  rule, params = _variant()
  assert isinstance(rule, disco.Disco)
  path = tmp_path / 'rule.npz'
  weights.save(path, params, rule.network)
  if is_compressed:
    with np.load(path) as arrays:
      np.savez_compressed(path, **arrays)
  card = json.dumps({'settings': {'discount': 0.9, 'reward_scale': 3.0}})
  defaults = {'lambda': 0.5, 'momentsDecay': 0.25, 'hasQ': False}
  program = pathlib.Path(explorer.__file__).parent / 'templates' / 'npz.js'
  script = f"""{program.read_text()}
    const {{ readFileSync }} = require('fs');
    const file = readFileSync({json.dumps(str(path))});
    const bytes = file.buffer.slice(
      file.byteOffset, file.byteOffset + file.length);
    readRule(
      bytes, {json.dumps(card)}, {json.dumps(defaults)}
    ).then((rule) => {{
      for (const array of Object.values(rule.weights)) {{
        array.data = Array.from(array.data);
      }}
      console.log(JSON.stringify(rule));
    }});"""
  ended = subprocess.run(
    [node, '-e', script], capture_output=True, text=True, check=True
  )
  found = json.loads(ended.stdout)
  assert found['settings'] == {
    'discount': 0.9,
    'lambda': 0.5,
    'rewardScale': 3.0,
    'momentsDecay': 0.25,
    'hasQ': True,
  }
  arrays = {f'{a}/{b}': x for a, y in params.items() for b, x in y.items()}
  assert found['weights'].keys() == arrays.keys()
  for name, array in arrays.items():
    data = np.reshape(found['weights'][name]['data'], array.shape)
    np.testing.assert_array_equal(np.float32(data), array)


def test_pages_are_utf8_whatever_the_locale_is(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """As where text is ASCII unless an encoding is given."""

  def ascii_by_default(method: Any) -> Any:
    def call(*args: Any, encoding: str = 'ascii', **named: Any) -> Any:
      return method(*args, encoding=encoding, **named)

    return call

  for name in ('read_text', 'write_text'):
    changed = ascii_by_default(getattr(pathlib.Path, name))
    monkeypatch.setattr(pathlib.Path, name, changed)
  path = tmp_path / 'page.html'
  explorer.write(path, {'general': registry.load('general')}, footer='π')
  assert 'π' in path.read_text(encoding='utf-8')
  pages.write_html(path, 'π', [pages.Heading('η')])
  assert '<title>π</title>' in path.read_text(encoding='utf-8')


def test_a_transformer_is_refused(tmp_path: pathlib.Path) -> None:
  network = meta_network.MetaNetworkConfig(lstm_size=8, transformer_layers=1)
  with pytest.raises(ValueError, match='rule_transformer_layers=1'):
    explorer.write(
      tmp_path / 'rule.html', {'x': (disco.Disco(network=network), {})}
    )
