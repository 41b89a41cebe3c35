"""Names under which rules are registered."""

import dataclasses

import pytest

from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import policy_gradient
from disco_rl.update_rules import registry


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
  """What is registered is forgotten afterwards."""
  monkeypatch.setattr(registry, '_HAND_MADE', dict(registry._HAND_MADE))


def define() -> type:
  """Runs the definition of a rule, as a cell of a notebook does."""

  @dataclasses.dataclass(frozen=True)
  class Mine(actor_critic.ActorCritic):
    pass

  return Mine


def test_a_definition_that_is_run_again_replaces_the_old_one() -> None:
  first, second = define(), define()
  registry.register('mine', first)
  registry.register('mine', second)
  assert type(registry.load('mine')[0]) is second


@pytest.mark.parametrize('name', registry.names())
def test_names_of_other_rules_are_taken(name: str) -> None:
  before = dict(registry._HAND_MADE)
  with pytest.raises(ValueError, match=f'There already is a rule {name!r}'):
    registry.register(name, define())
  assert dict(registry._HAND_MADE) == before


def test_a_name_of_ones_own_is_taken_too() -> None:
  registry.register('mine', define())
  with pytest.raises(ValueError, match='another name for PolicyGradient'):
    registry.register('mine', policy_gradient.PolicyGradient)


@pytest.mark.parametrize('name', ['mine.npz', 'my/rule', 'hf://me/it/a.npz@1'])
def test_names_that_look_like_paths(name: str) -> None:
  with pytest.raises(ValueError, match='looks like the path .* without separ'):
    registry.register(name, define())
