"""Torsos, the recurrent core and mixed precision of agents' networks."""

from collections.abc import Callable
import dataclasses
import re
from typing import Any

import chex
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.networks import agent_network
from disco_rl.networks import convolutions
from disco_rl.networks import nethack_encoder
from disco_rl.networks import torsos

ROWS = 3
VECTOR = jax.ShapeDtypeStruct((5,), np.float32)
IMAGE = jax.ShapeDtypeStruct((12, 10, 2), np.uint8)
NETHACK = {
  'glyphs': jax.ShapeDtypeStruct((21, 79), np.int16),
  'blstats': jax.ShapeDtypeStruct((27,), np.int32),
  'message': jax.ShapeDtypeStruct((256,), np.int16),
}
NETHACK_STACK = {
  key: jax.ShapeDtypeStruct((*x.shape, 3), x.dtype)
  for key, x in NETHACK.items()
}
SPEC = {'image': IMAGE, 'vector': VECTOR}
SMALL = {'channels': (4, 6), 'hidden_sizes': (7,)}


def observe(spec: Any, seed: int = 0, rows: int = ROWS) -> Any:
  """Random observations, [rows, ...]."""
  rng = np.random.default_rng(seed)

  def draw(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    shape = (rows, *leaf.shape)
    if np.issubdtype(leaf.dtype, np.integer):
      return rng.integers(0, 20, shape).astype(leaf.dtype)
    return rng.normal(size=shape).astype(leaf.dtype)

  return jax.tree.map(draw, spec)


def test_the_setting_names_the_torsos_of_the_package() -> None:
  ((setting, *_),) = config_lib.sections(torsos.TorsoConfig).values()
  # Tests of the examples import the module that registers the other one.
  own = [name for name in torsos.names() if name != 'residual']
  assert re.findall("'(.*?)'", setting.meaning) == own


@pytest.mark.parametrize(
  'kind, spec',
  [
    ('mlp', SPEC),
    ('impala', SPEC),
    ('impala', VECTOR),
    ('resnet', SPEC),
    pytest.param('nethack', NETHACK, marks=pytest.mark.slow),
    ('nethack', NETHACK_STACK),
  ],
)
def test_every_part_of_an_observation_matters(kind: str, spec: Any) -> None:
  """Every leaf; of a stack, every frame of each leaf."""
  torso = small.torso(torsos.TorsoConfig(kind, **SMALL))
  observation = observe(spec)
  params = torso.init(jax.random.key(0), observation)
  assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(params))
  embedding = torso.apply(params, observation)
  assert embedding.shape == (ROWS, 7)
  leaves, tree = jax.tree.flatten(observation)
  parts = range(3) if spec is NETHACK_STACK else [slice(None)]
  for i, other in enumerate(jax.tree.leaves(observe(spec, seed=1))):
    for part in parts:
      leaf = leaves[i].copy()
      leaf[..., part] = other[..., part]
      changed = tree.unflatten([*leaves[:i], leaf, *leaves[i + 1 :]])
      moved = np.abs(torso.apply(params, changed) - embedding).max(axis=-1)
      assert (moved > 1e-5).all(), f'leaf {i}, {part} is ignored'


@pytest.mark.parametrize(
  ('shape', 'dtype', 'scale'),
  [
    ((28, 28), np.uint8, 255),
    ((84, 84, 4), np.uint8, 255),
    ((4, 84, 84), np.uint8, 255),
    ((2, 64, 96, 3), np.uint8, 255),
    ((3,), np.uint8, 1),
    ((7, 7, 3), np.uint8, 1),
    ((25, 25, 3), np.uint8, 1),
    ((30, 7, 32), np.uint8, 1),
    ((128,), np.uint8, 1),
    ((84, 84, 4), np.int32, 1),
    ((84, 84, 4), np.float32, 1),
  ],
)
def test_pictures_are_scaled_and_nothing_else(
  shape: tuple[int, ...], dtype: Any, scale: int
) -> None:
  flat = lambda x: x.reshape(len(x), -1)
  torso = small.torso(torsos.TorsoConfig(flat))
  numbers = np.random.default_rng(0).integers(0, 256, (2, *shape)).astype(dtype)
  np.testing.assert_allclose(
    torso.apply({}, numbers), flat(numbers) / scale, rtol=1e-6
  )


def mine(observation: Any) -> types.Array:
  return hk.nets.MLP([4, 9], name='my_layers')(observation)


def test_hyperbolic_tangents_after_orthogonal_layers() -> None:
  config = torsos.TorsoConfig(hidden_sizes=(6, 5), activation='tanh')
  torso, x = small.torso(config), observe(VECTOR)
  params = torso.init(jax.random.key(0), x)
  want = np.concatenate(
    [np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(x)], axis=-1
  )
  for layer in ('linear_0', 'linear_1'):
    (name,) = (name for name in params if name.endswith(layer))
    w, b = params[name]['w'], params[name]['b']
    smaller = w.T @ w if w.shape[0] > w.shape[1] else w @ w.T
    np.testing.assert_allclose(smaller, 2 * np.eye(len(smaller)), atol=1e-5)
    want = np.tanh(want @ w + b)
  np.testing.assert_allclose(torso.apply(params, x), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  ('settings', 'is_positive'),
  [
    ({'kind': 'impala'}, False),
    ({'kind': 'impala', 'final_relu': True}, True),
    ({'kind': 'resnet', 'final_relu': True}, True),
    ({'kind': 'mlp', 'final_relu': True}, False),
  ],
)
def test_a_relu_may_follow_the_last_layer_after_convolutions(
  settings: dict[str, Any], is_positive: bool
) -> None:
  config = torsos.TorsoConfig(hidden_sizes=(64,), channels=(2,), **settings)
  torso, x = small.torso(config), observe(IMAGE)
  embedding = np.asarray(torso.apply(torso.init(jax.random.key(0), x), x))
  assert (embedding > 0).any()
  assert (embedding >= 0).all() == is_positive


def test_no_batch_of_agents_is_decomposed_at_once() -> None:
  # Batches of decompositions may wait for each other forever on CPUs.
  config = torsos.TorsoConfig(hidden_sizes=(6, 5), activation='tanh')
  torso, x = small.torso(config), observe(VECTOR)
  keys = jax.random.split(jax.random.key(0), 3)
  init = jax.vmap(lambda key: torso.init(key, x))
  traced = str(jax.make_jaxpr(init)(keys))
  decomposed = re.findall(r'f32\[([\d,]+)\] \S+ = qr\[', traced)
  assert decomposed and all(len(x.split(',')) == 2 for x in decomposed)
  chex.assert_trees_all_close(
    jax.tree.map(lambda many: many[1], init(keys)),
    torso.init(keys[1], x),
    rtol=1e-5,
    atol=1e-6,
  )


def test_own_torsos_are_given_as_functions_or_by_name(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(torsos, '_TORSOS', dict(torsos._TORSOS))
  torsos.register('mine', mine)
  with pytest.raises(ValueError, match="torso 'mine' is already"):
    torsos.register('mine', mine)
  embeddings = []
  for kind in ('mine', mine):
    network = agent_network.make(
      types.EnvironmentSpec(VECTOR, num_actions=2),
      types.OutputSpec(state={}, action={}),
      agent_network.AgentNetworkConfig(torsos.TorsoConfig(kind)),
    )
    params = network.init(jax.random.key(0))
    assert any('my_layers' in name for name in params)
    assert params['agent/~/logits']['w'].shape == (9, 2)
    embeddings.append(network.step(params, observe(VECTOR), ())[0])
  np.testing.assert_array_equal(*embeddings)


@pytest.mark.parametrize(
  'kind, message',
  [
    (lambda x: x[..., None], 'must return [3, width]'),
    ('nethack', 'glyphs, blstats, message'),
  ],
)
def test_torsos_that_do_not_fit(kind: Any, message: str) -> None:
  with pytest.raises(ValueError, match=re.escape(message)):
    small.torso(torsos.TorsoConfig(kind)).init(
      jax.random.key(0), observe(VECTOR)
    )


@pytest.mark.slow
def test_a_stack_of_one_screen_of_nethack_is_the_screen() -> None:
  torso = small.torso(torsos.TorsoConfig('nethack', **SMALL))
  observation = observe(NETHACK)
  stack = {key: x[..., None] for key, x in observation.items()}
  params = torso.init(jax.random.key(0), observation)
  chex.assert_trees_all_equal(params, torso.init(jax.random.key(0), stack))
  np.testing.assert_array_equal(
    torso.apply(params, observation), torso.apply(params, stack)
  )


def test_the_heros_surroundings_are_cut_out_of_the_map() -> None:
  glyphs = jnp.arange(21 * 79).reshape(1, 21, 79)
  frames = jnp.stack([glyphs + 1, glyphs], axis=-1)

  def cut(column: int, row: int) -> types.Array:
    # The hero of the older frame was elsewhere.
    stats = jnp.array([[[1, column], [2, row]]])
    older, newer = jnp.moveaxis(
      nethack_encoder.surroundings(frames, stats)[0], -1, 0
    )
    is_nothing = newer == nethack_encoder.NUM_GLYPHS - 1
    np.testing.assert_array_equal(
      older, jnp.where(is_nothing, newer, newer + 1)
    )
    return newer

  np.testing.assert_array_equal(cut(40, 10), glyphs[0, 6:15, 36:45])
  corner = cut(0, 20)
  np.testing.assert_array_equal(corner[:5, 4:], glyphs[0, 16:, :5])
  nothing = nethack_encoder.NUM_GLYPHS - 1
  assert (corner[5:] == nothing).all() and (corner[:, :4] == nothing).all()


@pytest.mark.parametrize('core', [pytest.param(0, marks=pytest.mark.slow), 6])
def test_separate_torsos_share_nothing(core: int) -> None:
  spec = types.EnvironmentSpec(VECTOR, num_actions=3)
  config = agent_network.AgentNetworkConfig(
    torsos.TorsoConfig(hidden_sizes=(7,)),
    core_lstm=core,
    action_model_lstm=8,
    action_model_head=8,
    separate_torsos=True,
  )
  heads = types.OutputSpec(state={'v': 5}, action={'q': 4})
  network = agent_network.make(spec, heads, config)
  params = jax.jit(network.init)(jax.random.key(0))
  rollout = types.empty_rollout(
    spec, network.initial_state(ROWS), length=1, batch_size=ROWS
  )
  observation = observe(VECTOR, rows=2 * ROWS).reshape(2, ROWS, -1)
  rollout = dataclasses.replace(
    rollout,
    observation=observation,
    mask=jnp.ones_like(rollout.mask),
  )

  def total(params: types.Params, name: str) -> types.Array:
    return jnp.sum(network.unroll(params, rollout)[0][name] ** 2)

  of_policy = {'torso', *(['core'] if core else ()), 'logits'}
  for name in ('logits', 'v', 'q'):
    gradient = jax.jit(jax.grad(total), static_argnums=1)(params, name)
    reached = {
      module.split('/')[2]
      for module, leaves in gradient.items()
      if any(np.any(x) for x in leaves.values())
    }
    if name == 'logits':
      assert reached == of_policy
    else:
      assert 'second_torso' in reached and not reached & of_policy
  # Acting, step by step, gives the same policy.
  state, logits = network.initial_state(ROWS), []
  for x in observation:
    one, state = jax.jit(network.step)(params, x, state)
    logits.append(one)
  for found in (network.unroll(params, rollout)[0]['logits'], logits):
    np.testing.assert_allclose(
      found, network.policy(params, rollout), rtol=1e-4, atol=1e-6
    )


def test_a_second_torso_needs_another_head_than_the_policy() -> None:
  config = agent_network.AgentNetworkConfig(separate_torsos=True)
  spec = types.EnvironmentSpec(VECTOR, num_actions=3)
  with pytest.raises(ValueError, match='no meaning for a rule whose only'):
    agent_network.make(spec, types.OutputSpec(state={}, action={}), config)


def test_bfloat16_is_close_to_float32() -> None:
  def make(dtype: str) -> agent_network.AgentNetwork:
    return agent_network.make(
      types.EnvironmentSpec(SPEC, num_actions=3),
      types.OutputSpec(state={'v': 5}, action={'q': 4}),
      agent_network.AgentNetworkConfig(
        torsos.TorsoConfig('impala', **SMALL),
        core_lstm=6,
        action_model_lstm=8,
        action_model_head=8,
        compute_dtype=dtype,
      ),
    )

  exact, rough = make('float32'), make('bfloat16')
  params, same = (
    jax.jit(network.init)(jax.random.key(0)) for network in (exact, rough)
  )
  jax.tree.map(np.testing.assert_array_equal, params, same)
  rollout = types.empty_rollout(
    types.EnvironmentSpec(SPEC, num_actions=3),
    exact.initial_state(ROWS),
    length=1,
    batch_size=ROWS,
  )
  observation = jax.tree.map(
    lambda x: x.reshape(2, ROWS, *x.shape[1:]), observe(SPEC, rows=2 * ROWS)
  )
  rollout = dataclasses.replace(rollout, observation=observation)
  every, taken = jax.jit(exact.unroll)(params, rollout)
  others = jax.jit(rough.unroll)(params, rollout)
  for want, got in zip((every, taken), others):
    for name, head in want.items():
      assert got[name].dtype == jnp.float32
      scale = np.abs(head).max()
      np.testing.assert_allclose(got[name], head, atol=0.05 * scale)
      assert (got[name] != head).any()
  products = re.findall(
    r':(\w+)\[[^\]]*\] = (?:dot_general|conv_general_dilated)',
    str(jax.make_jaxpr(rough.unroll)(params, rollout)),
  )
  assert len(products) > 10 and set(products) == {'bf16'}


@pytest.mark.parametrize('size, stride', [(5, 1), (6, 1), (5, 2), (6, 2)])
def test_derivatives_of_convolutions_on_cpus(size: int, stride: int) -> None:
  """First and second ones are those of the plain convolution."""
  rng = np.random.default_rng(0)
  with jax.enable_x64(True):
    image = jnp.asarray(rng.normal(size=(2, size, size, 3)))
    filters = jnp.asarray(rng.normal(size=(3, 3, 3, 4)))
    tangents = jax.tree.map(jnp.cos, (image, filters))

    def derivatives(convolve: Callable[..., Any]) -> Any:
      loss = lambda image, filters: jnp.sum(
        jnp.sin(convolve(image, filters, stride))
      )
      gradient = jax.grad(loss, argnums=(0, 1))
      return loss(image, filters), jax.jvp(gradient, (image, filters), tangents)

    plain = lambda image, filters, stride: jax.lax.conv_general_dilated(
      image,
      filters,
      (stride, stride),
      'SAME',
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
    )
    chex.assert_trees_all_close(
      derivatives(convolutions.convolve_on_cpu),
      derivatives(plain),
      rtol=1e-10,
      atol=1e-12,
    )
