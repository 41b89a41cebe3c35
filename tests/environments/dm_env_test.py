"""Tests of the adapter of dm_env, and of what sequential adapters share."""

import collections
import dataclasses
from typing import Any
from typing import NamedTuple

import conformance
import dm_env
from dm_env import specs
import jax
import numpy as np
import pytest

from disco_rl.environments import wrapping
from disco_rl.environments.host import dm_env_adapter


class Probe(dm_env.Environment):
  """The reward is the action.

  The episodes are terminated in their second step and truncated in their third
  step by turns.
  """

  def __init__(self, seed: int = 0):
    self._rng = np.random.default_rng(seed)
    self._num_episodes = 0
    self._count: int | None = None
    # Written into in every step, as simulators do.
    self._image = np.zeros((2, 3), np.uint8)
    self.seed = seed
    self.discount: Any = 1.0
    self.last_discount: Any = None
    self.num_empty = 0
    self.is_closed = False

  def reset(self) -> dm_env.TimeStep:
    self._num_episodes += 1
    self._count = 0
    if self.num_empty:
      self.num_empty -= 1
      return dm_env.termination(0.0, self._observe())
    return dm_env.restart(self._observe())

  def step(self, action: Any) -> dm_env.TimeStep:
    if self._count is None:
      return self.reset()
    self._count += 1
    reward = float(action)
    is_limited = self._num_episodes % 2 == 0
    if self._count < 2 + is_limited:
      return dm_env.transition(reward, self._observe(), self.discount)
    observation = self._observe()
    self._count = None
    end = dm_env.truncation if is_limited else dm_env.termination
    timestep = end(reward, observation)
    if self.last_discount is None:
      return timestep
    return timestep._replace(discount=self.last_discount[0])

  def close(self) -> None:
    self.is_closed = True

  def action_spec(self) -> Any:
    return specs.DiscreteArray(3, dtype=np.int64)

  def observation_spec(self) -> Any:
    return collections.OrderedDict(
      image=specs.BoundedArray((2, 3), np.uint8, 0, 254),
      rest=[specs.Array((), np.int64), specs.Array((2,), np.float64)],
    )

  def _observe(self) -> Any:
    assert self._count is not None
    self._image[:] = self._count
    noise = self._rng.random(2)
    return collections.OrderedDict(
      image=self._image, rest=[np.int64(self._count), noise]
    )


def _probes() -> dm_env_adapter.DmEnvEnvironment:
  return dm_env_adapter.DmEnvEnvironment([Probe(0), Probe(1)], seed=7)


def test_conforms_and_time_limits_are_truncations() -> None:
  trajectory = conformance.check(
    lambda seed: wrapping.recognize(Probe).build(96, seed), 14
  )
  timestep = trajectory.timestep
  # Two steps, one that resets, three steps, one that resets, over and over.
  is_last = np.array([0, 1, 0, 0, 0, 1, 0] * 2, bool)[:, None]
  is_dummy = np.array([0, 0, 1, 0, 0, 0, 1] * 2, bool)[:, None]
  is_truncated = np.array([0, 0, 0, 0, 0, 1, 0] * 2, bool)[:, None]
  for got, want in (
    (timestep.is_last, is_last),
    (timestep.mask, ~is_dummy),
    (timestep.is_terminal, (is_last & ~is_truncated) | is_dummy),
    (timestep.reward, np.where(is_dummy, 0, trajectory.action)),
  ):
    np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))
  # The last observation of an episode is returned, then the first of the next.
  np.testing.assert_array_equal(
    trajectory.observation['rest'][0][:, 0], [0, *(1, 2, 0, 1, 2, 3, 0) * 2]
  )


def test_specs_become_trees_of_arrays() -> None:
  spec = _probes().spec
  assert spec.num_actions == 3
  assert spec.observation == {
    'image': jax.ShapeDtypeStruct((2, 3), np.uint8),
    'rest': (
      jax.ShapeDtypeStruct((), np.int32),
      jax.ShapeDtypeStruct((2,), np.float32),
    ),
  }


def test_each_environment_gets_its_seed() -> None:
  seeds: list[int] = []

  def make_env(seed: int) -> Probe:
    seeds.append(seed)
    return Probe(seed)

  for seed in (3, 4):
    wrapping.recognize(make_env).build(5, seed)
  assert len(set(seeds)) == 10
  assert all(type(seed) is int and seed >= 0 for seed in seeds)


def test_close_closes_all() -> None:
  probes = [Probe(), Probe()]
  dm_env_adapter.DmEnvEnvironment(probes, seed=0).close()
  assert all(probe.is_closed for probe in probes)


@pytest.mark.parametrize(
  'rest, message',
  [
    ([np.int64(1), np.zeros(1)], r" 0 of 2: .*\['rest'\]\[1\] is float64\[1\]"),
    ([np.float64(1), np.zeros(2)], r"\['rest'\]\[0\] .*float64\[\], .*int32"),
    ([np.int64(1)], r"0 of 2: observation\['rest'\] lacks 1"),
  ],
)
def test_observations_that_break_their_spec_are_refused(
  rest: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  environment = _probes()
  observation = {'image': np.zeros((2, 3), np.uint8), 'rest': rest}
  monkeypatch.setattr(Probe, '_observe', lambda _: observation)
  with pytest.raises(RuntimeError, match=f'Probe .* step 0 .*{message}'):
    environment.reset()


def test_empty_episodes_are_skipped() -> None:
  probe = Probe()
  environment = dm_env_adapter.DmEnvEnvironment([probe], seed=7)
  probe.num_empty = 3
  environment.reset()
  steps = [environment.step([0]) for _ in range(3)]
  assert [x.is_last.item() for x in steps] == [False, False, True]
  probe.num_empty = 10**9
  with pytest.raises(RuntimeError, match='reset returned a LAST step 1000 tim'):
    environment.step([0])


@pytest.mark.parametrize(
  'discount', [None, [0.0], np.zeros(1), 'end', np.nan, np.float32(0), 0, True]
)
def test_the_discount_of_a_last_step_is_a_number(discount: Any) -> None:
  probe = Probe()
  environment = dm_env_adapter.DmEnvEnvironment([probe], seed=7)
  probe.last_discount = (discount,)
  environment.reset()
  environment.step([0])
  if (
    np.shape(discount)
    or isinstance(discount, str | None)
    or (discount != discount)
  ):
    with pytest.raises(RuntimeError, match='a LAST step has the discount .* 0'):
      environment.step([0])
  else:
    assert environment.step([0]).is_terminal == (not discount)


@pytest.mark.parametrize('field', ['discount', 'last_discount'])
def test_other_discounts_are_ignored_with_a_warning(field: str) -> None:
  probe = Probe()
  environment = dm_env_adapter.DmEnvEnvironment([probe], seed=7)
  setattr(probe, field, 0.9 if field == 'discount' else (0.9,))
  environment.reset()
  with pytest.warns(UserWarning, match='returns discounts .* such as 0.9'):
    steps = [environment.step([0]) for _ in range(2)]
  assert [x.is_last.item() for x in steps] == [False, True]
  # A truncation, if the discount is not 0.
  assert steps[1].is_terminal == (field == 'discount')


class Named(NamedTuple):
  image: Any
  rest: Any


@dataclasses.dataclass
class Record:
  image: Any
  rest: Any


@pytest.mark.parametrize('kind', [Named, Record])
def test_observations_may_have_their_entries_as_fields(
  kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
  want = _probes().reset()
  observe = Probe._observe
  monkeypatch.setattr(Probe, '_observe', lambda self: kind(**observe(self)))
  environment = _probes()
  jax.tree.map(np.testing.assert_array_equal, environment.reset(), want)
  one = kind(np.zeros((2, 3), np.uint8), [np.int64(4), np.ones(2)])
  assert environment.encode(one)['rest'][0] == 4
  spec = {**Probe().observation_spec(), 'board': specs.Array((), np.int32)}
  monkeypatch.setattr(Probe, 'observation_spec', lambda _: spec)
  message = (
    f"lacks 'board': it is a {kind.__name__} with the fields image, rest'?$"
  )
  with pytest.raises(RuntimeError, match=message):
    _probes().reset()


def test_episodes_that_begin_without_an_end_are_refused(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  environment = _probes()
  environment.reset()
  monkeypatch.setattr(Probe, 'step', lambda self, _: self.reset())
  with pytest.raises(RuntimeError, match='an episode began, but no LAST'):
    environment.step([0, 0])


@pytest.mark.parametrize(
  'name, spec, message',
  [
    (
      'action',
      specs.BoundedArray((), np.int32, 0, 2),
      'Probe has the action spec BoundedArray.*only DiscreteArray',
    ),
    (
      'observation',
      {'a': (specs.StringArray(()),)},
      r"Probe\['a'\]\[0\] has the observation spec StringArray.*of numbers",
    ),
    (
      'observation',
      [np.zeros(2)],
      r'Probe\[0\] has the observation spec \[0. 0.\]: only Array',
    ),
    ('reward', specs.Array((2,), float), r'Probe has the reward spec .*\(2,\)'),
    ('discount', {'a': specs.Array((), float)}, 'Probe has the discount spec'),
  ],
)
def test_what_is_not_supported_is_named(
  name: str, spec: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(Probe, f'{name}_spec', lambda _: spec)
  with pytest.raises(ValueError, match=message):
    _probes()


def test_environments_must_be_alike() -> None:
  class Other(Probe):
    def action_spec(self) -> Any:
      return specs.DiscreteArray(4)

  with pytest.raises(ValueError, match='environments 0 and 2 differ'):
    dm_env_adapter.DmEnvEnvironment([Probe(), Probe(), Other()], seed=0)
