"""Settings of preprocessing: from a config to the environment."""

from typing import Any

import conformance
import pytest

from configs import evaluate as evaluate_config
from disco_rl.environments import registry
from disco_rl.training import config as training_config


@pytest.mark.parametrize(
  'name, family, changes, shape',
  [
    ('crafter', 'crafter', {'frame_stack': 2, 'height': 32}, (32, 64, 6)),
    ('atari/pong', 'atari', {'frame_stack': 2, 'width': 50}, (84, 50, 2)),
    ('procgen/easy/maze', 'procgen', {'frame_stack': 1}, (64, 64, 3)),
  ],
)
def test_changes_reach_the_environment(
  name: str, family: str, changes: dict[str, Any], shape: tuple[int, ...]
) -> None:
  conformance.skip_without(name)
  settings = evaluate_config.get_config('catch').to_dict()
  settings['environment'] = name
  settings['preprocessing'][family].update(changes)
  config = training_config.config_of(settings)
  environment = registry.make(
    name, 2, seed=0, preprocessing=config.preprocessing
  )
  assert environment.spec.observation.shape == shape
  assert environment.reset().shape == (2, *shape)
  environment.close()


@pytest.mark.parametrize(
  'preprocessing, message',
  [
    (
      {'crafter': {'frame_stak': 2}},
      r"preprocessing.crafter has no setting 'frame_stak'\. .* frame_stack",
    ),
    (
      {'nethack': {'frame_stack': 0}},
      'nethack.frame_stack=0 must be at least 1',
    ),
    ({'sokoban': {'time_limit': -1}}, 'time_limit=-1 must be at least 1'),
    ({'dmlab': {'renderer': 'x'}}, "'x' must be one of software, hardware"),
    ({'crafter': {'frame_stack': 'two'}}, "frame_stack='two' must be a whole"),
    (
      {'catch': {'height': 2}},
      'preprocessing.catch=.* choose one of gymnasium',
    ),
    ({'crafter': 4}, 'preprocessing.crafter=4 is not possible'),
    (4, 'preprocessing=4 must hold settings by family'),
  ],
)
def test_what_is_wrong_is_said_before_anything_is_built(
  preprocessing: Any, message: str
) -> None:
  settings = evaluate_config.get_config('catch').to_dict()
  settings['preprocessing'] = preprocessing
  with pytest.raises(ValueError, match=message):
    training_config.config_of(settings)
