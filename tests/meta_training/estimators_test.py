"""Estimators on problems whose best lifetimes are known, in float64.

Two problems mislead whoever looks a few updates ahead. In the noisy quadratic
(Wu et al., 2018) the rule is a step size: the steep direction, which is soon at
its noise, asks for small steps, the flat one for large ones. In the bandit it
is a rate of exploration, which costs reward now and finds an arm for later.
The expected states of both follow geometric series, so the reward of a whole
lifetime has a closed form.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import learner
from disco_rl.meta_training import bootstrapping
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import persistent_evolution

LIFETIME = 100


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
  with jax.enable_x64(True):
    yield


@dataclasses.dataclass(frozen=True)
class Problem:
  """An inner problem over an array x, whose rule is one number.

  Attributes:
    initial: The state of a new learner.
    step: (rule, x) -> x after an update.
    reward_of: x -> the reward, [].
    num_updates: N.
    outer_rate: The step size of the target's last update.
  """

  initial: tuple[float, ...]
  step: Callable[[types.Array, types.Array], types.Array]
  reward_of: Callable[[types.Array], types.Array]
  num_updates: int = 1
  outer_rate: float = 0.0

  def begin(self, key: types.Array) -> inner_loop_lib.Newborn:
    """Makes an agent with a key and a learner state, and nothing else."""
    params: Any = {'x': jnp.asarray(self.initial)}
    empty: Any = ()
    return inner_loop_lib.Newborn(
      learner=learner.LearnerState(params, (), ()),
      meta_value=empty,
      acting=actor.Acting(key, empty, None),
    )

  def key(self, state: Any) -> types.Array:
    return state.acting.key

  def with_key(self, state: Any, key: types.Array) -> Any:
    acting = dataclasses.replace(state.acting, key=key)
    return dataclasses.replace(state, acting=acting)

  def steps(self, updates: int, validations: int) -> int:
    return updates + validations

  def learner(self, state: Any) -> Any:
    return state.learner

  def to_device(self, segment: Any) -> Any:
    return segment

  def learn(self, rule: Any, state: Any, batch: Any) -> Any:
    del batch
    x = self.step(rule['rule']['value'], state.params['x'])
    return dataclasses.replace(state, params={'x': x}), None

  def update(self, rule: Any, state: Any, batch: Any, gradient: Any) -> Any:
    del gradient
    return self.learn(rule, state, batch)[0], jnp.zeros(()), {}

  def run(self, environment: None, rule: Any, state: Any, updates: int) -> Any:
    del environment

    def update(state: Any, _: None) -> Any:
      before = state.learner
      after, _ = self.learn(rule, before, None)
      entry = inner_loop_lib.Trajectory(before, jnp.zeros((1, 1)), None)
      return dataclasses.replace(state, learner=after), entry

    state, trajectory = jax.lax.scan(update, state, length=updates)
    return state, trajectory, {}

  def advance(self, environment: None, rule: Any, state: Any, n: int) -> Any:
    return self.run(environment, rule, state, n)[0]

  def validate(self, environment: None, state: Any) -> Any:
    del environment
    return state, self.reward_of(state.learner.params['x'])

  def reward(self, validation: Any) -> Any:
    return validation

  def outer_gradient(self, state: Any, validation: Any) -> Any:
    del validation
    loss = lambda params: -self.reward_of(params['x'])
    return jax.grad(loss)(state.learner.params), state, {}

  def outer_step(self, state: Any, gradient: Any) -> Any:
    params = state.learner.params
    return {'x': params['x'] - self.outer_rate * gradient['x']}

  def divergence_gradient(self, params: Any, target: Any, _: Any) -> Any:
    return {'x': params['x'] - target['x']}, {}


# The noisy quadratic: x_i is the mean square distance from the optimum in
# direction i, of curvature H_i; gradients have the variance NOISE_i.
H = np.array([1.0, 0.02])
NOISE = np.array([1.0, 0.0])
START = (1.0, 50.0)


def quadratic(num_updates: int = 1, outer_rate: float = 0.0) -> Problem:
  return Problem(
    START,
    lambda rate, x: (1.0 - rate * H) ** 2 * x + rate**2 * NOISE,
    lambda x: -0.5 * jnp.sum(H * x),
    num_updates,
    outer_rate,
  )


def quadratic_lifetime(rate: float) -> float:
  """The mean reward after each of the updates, by geometric series."""
  ratio = (1.0 - rate * H) ** 2
  limit = rate**2 * NOISE / (1.0 - ratio)
  total = ratio * (1.0 - ratio**LIFETIME) / (1.0 - ratio)
  mean = limit + (np.array(START) - limit) * total / LIFETIME
  return float(-0.5 * np.sum(H * mean))


# The bandit: x has the probability that the better arm is known, and the rate
# of exploration in the next update, which the rule sets. Exploring earns
# nothing, and finds the arm with a probability of 0.1.
FOUND = 0.1


def _explore(rule: Any, x: Any) -> Any:
  known = x[0] + (1.0 - x[0]) * FOUND * x[1]
  return jnp.stack([known, 1.0 / (1.0 + jnp.exp(-rule))])


def bandit(num_updates: int = 1) -> Problem:
  return Problem(
    (0.0, 0.0), _explore, lambda x: (1.0 - x[1]) * x[0], num_updates
  )


def bandit_lifetime(rule: float) -> float:
  """The mean reward after each of the updates, of which the first only sets
  the rate."""
  rate = 1.0 / (1.0 + np.exp(-rule))
  ratio = 1.0 - FOUND * rate
  unknown = (1.0 - ratio**LIFETIME) / (1.0 - ratio)
  return float((1.0 - rate) * (1.0 - unknown / LIFETIME))


CASES = {
  # The problem, its lifetime, candidates for the rule, and where to start.
  'quadratic': (quadratic, quadratic_lifetime, np.linspace(0.02, 0.95, 4001)),
  'bandit': (bandit, bandit_lifetime, np.linspace(-6.0, 2.0, 4001)),
}


def slope(lifetime: Callable[[float], float], rule: float) -> float:
  """The derivative of a lifetime's reward."""
  return (lifetime(rule + 1e-5) - lifetime(rule - 1e-5)) / 2e-5


def over_a_lifetime(
  problem: Problem, estimator: estimator_lib.DeviceEstimator
) -> Callable[..., float]:
  """A function of rule and seed, while the rule is fixed for a lifetime.

  It returns the mean gradient of the lifetime's meta-steps: an estimate of the
  gradient of minus its mean reward.
  """

  @jax.jit
  def run(rule: types.Array, key: types.Array) -> Any:
    params = {'rule': {'value': rule}}
    initial = estimator.initial_member(problem.begin, key)
    member: Any = inner_loop_lib.Member(
      **vars(initial), replay=(), meta_opt_state=()
    )

    def window(member: Any, _: None) -> Any:
      gradient, member, _ = estimator(params, member, None)
      return member, gradient['rule']['value']

    # As a group of one has it.
    member = jax.tree.map(lambda x: x[None], member)
    member = estimator.begin(member, params)
    member = jax.tree.map(lambda x: x[0], member)
    windows = LIFETIME // problem.num_updates
    return jnp.mean(jax.lax.scan(window, member, length=windows)[1])

  return lambda rule, seed=0: float(
    run(jnp.asarray(rule, float), jax.random.key(seed))
  )


def truncated(
  make: Callable[..., Problem], window: int, outer_losses: int = 1
) -> Callable[..., float]:
  """`over_a_lifetime` by differentiation through windows."""
  problem, settings = make(window), meta_gradient.Differentiation
  return over_a_lifetime(
    problem,
    meta_gradient.MetaGradient(problem, settings('plain', outer_losses)),
  )


def evolved(
  make: Callable[..., Problem], window: int, pairs: int, std: float
) -> Callable[..., float]:
  """`over_a_lifetime` by persistent evolution strategies."""
  problem, settings = make(window), persistent_evolution.Persistent
  return over_a_lifetime(
    problem,
    persistent_evolution.PersistentEvolution(problem, settings(pairs, std)),
  )


def descend(
  gradient: Callable[..., float], rule: float, rate: float, steps: int
) -> float:
  """The rule after gradient descent, with a lifetime in each step."""
  for seed in range(steps):
    rule -= rate * gradient(rule, seed)
  return rule


@pytest.mark.parametrize('name', CASES)
def test_the_closed_form_is_that_of_the_updates(name: str) -> None:
  make, lifetime, candidates = CASES[name]
  rule, problem = float(candidates[2000]), make()
  x, rewards = jnp.asarray(problem.initial), []
  for _ in range(LIFETIME):
    x = problem.step(jnp.asarray(rule), x)
    rewards.append(float(problem.reward_of(x)))
  assert np.mean(rewards) == pytest.approx(lifetime(rule), rel=1e-9)


@pytest.mark.parametrize('name', CASES)
def test_a_short_window_moves_away_from_the_best_rule(name: str) -> None:
  """The failure that the other estimators are for."""
  make, lifetime, candidates = CASES[name]
  best = np.argmax([lifetime(rule) for rule in candidates])
  # Positive: descent lowers the step size, or the exploration.
  found = truncated(make, 1)(candidates[best])
  slopes = [slope(lifetime, rule) for rule in candidates[:best:400]]
  assert found > 0.1 * np.mean(np.abs(slopes))


@pytest.mark.parametrize('name', CASES)
def test_a_window_as_long_as_a_life_with_all_its_losses_is_exact(
  name: str,
) -> None:
  """Every update has an outer loss, so the gradient is that of the lifetime."""
  make, lifetime, candidates = CASES[name]
  gradient = truncated(make, LIFETIME, outer_losses=LIFETIME)
  for rule in candidates[[500, 2000, 3000]].tolist():
    assert -gradient(rule) == pytest.approx(slope(lifetime, rule), rel=1e-4)


def test_longer_windows_are_less_biased() -> None:
  """By the lifetimes of step sizes at which their gradients vanish."""
  best = max(map(quadratic_lifetime, CASES['quadratic'][2].tolist()))
  gaps = []
  for window in (1, 20, 50):
    gradient = truncated(quadratic, window, outer_losses=window)
    low, high = 0.02, 0.9
    for _ in range(20):
      middle = (low + high) / 2.0
      low, high = (low, middle) if gradient(middle) > 0 else (middle, high)
    gaps.append(best - quadratic_lifetime(low))
  assert gaps[0] > 1.3 * gaps[1] > 1.3**2 * gaps[2] >= 0.0


@pytest.mark.parametrize('name', CASES)
@pytest.mark.parametrize('window', [1, 20])
def test_persistent_evolution_sees_the_lifetime(name: str, window: int) -> None:
  """On both sides of the best rule, of which a short window sees one."""
  make, _, candidates = CASES[name]
  problem = make(window)

  def lifetime(rule: float) -> float:
    """The mean of the rewards after each window."""
    x, rewards = np.asarray(problem.initial), []
    for _ in range(LIFETIME):
      x = np.asarray(problem.step(np.asarray(rule), x))
      rewards.append(float(problem.reward_of(x)))
    return float(np.mean(rewards[window - 1 :: window]))

  gradient = evolved(make, window, pairs=500, std=1e-3)
  for rule in candidates[[700, 3000]].tolist():
    found = [gradient(rule, seed) for seed in range(8)]
    error = np.std(found, ddof=1) / np.sqrt(8)
    expected = -slope(lifetime, rule)
    assert error < 0.15 * abs(expected)
    assert abs(np.mean(found) - expected) < 5.0 * error


@pytest.mark.parametrize(
  ('name', 'rate', 'start'), [('quadratic', 0.5, 0.2), ('bandit', 8.0, -4.0)]
)
def test_persistent_evolution_finds_the_best_rule(
  name: str, rate: float, start: float
) -> None:
  make, lifetime, candidates = CASES[name]
  best = max(map(lifetime, candidates.tolist()))
  found = descend(evolved(make, 1, pairs=50, std=1e-2), start, rate, 30)
  myopic = descend(truncated(make, 1), start, rate, 30)
  assert best - lifetime(found) < 0.1 * (best - lifetime(start))
  assert lifetime(myopic) < lifetime(start)


# Bootstrapping.


def bootstrapped(
  updates: int, outer_rate: float, is_grounded: bool = True
) -> tuple[Problem, bootstrapping.BootstrappedGradient]:
  problem = quadratic(1, outer_rate)
  settings = bootstrapping.Bootstrapping('plain', updates, is_grounded)
  return problem, bootstrapping.BootstrappedGradient(problem, settings)


def test_a_target_one_outer_step_away_gives_the_truncated_gradient() -> None:
  """With squared distances, times the size of the step."""
  expected = truncated(quadratic, 1)(0.3)
  found = over_a_lifetime(*bootstrapped(1, 0.25))(0.3)
  assert found == pytest.approx(0.25 * expected, rel=1e-9)


@pytest.mark.parametrize('is_grounded', [False, True])
def test_the_target_is_the_learner_some_updates_later(
  is_grounded: bool,
) -> None:
  """By hand: the pull of x_1 towards x_4, or towards an outer step from it."""
  rate, x = 0.3, [np.array(START)]
  for _ in range(4):
    x.append((1.0 - rate * H) ** 2 * x[-1] + rate**2 * NOISE)
  of_rate = -2.0 * H * (1.0 - rate * H) * x[0] + 2.0 * rate * NOISE
  target = x[4] - is_grounded * 0.25 * 0.5 * H
  problem, estimator = bootstrapped(3 + is_grounded, 0.25, is_grounded)
  params = {'rule': {'value': jnp.asarray(rate)}}
  member = problem.begin(jax.random.key(0))
  gradient, member, _ = jax.jit(estimator)(params, member, None)
  np.testing.assert_allclose(
    gradient['rule']['value'], (x[1] - target) @ of_rate, rtol=1e-9
  )
  # It goes on from the later updates; the outer step is not part of its life.
  np.testing.assert_allclose(member.learner.params['x'], x[4])
  assert estimator.steps == (4 + 1, 4 + 1)


def test_bootstrapping_sees_beyond_its_window() -> None:
  """Its window is one update, like that of the truncated gradient."""
  best = max(map(quadratic_lifetime, CASES['quadratic'][2].tolist()))
  myopic = descend(truncated(quadratic, 1), 0.2, 0.5, 60)
  gradient = over_a_lifetime(*bootstrapped(2, 1.0))
  found = descend(gradient, 0.2, 0.01, 60)
  gaps = [best - quadratic_lifetime(rate) for rate in (myopic, found)]
  assert gaps[1] < 0.7 * gaps[0]
