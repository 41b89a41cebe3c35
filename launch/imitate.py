"""Makes a rule that imitates the policy gradient, to start discovery from.

  disco-rl imitate --config=general --workdir=runs/imitation
  disco-rl meta-train --config=general \
    --config.rule=runs/imitation/rule.npz --workdir=runs/from_imitation

The sizes, such as rule_lstm_size, are those of the config. rule.npz and its
card, rule.json, are written at the end, so after an interruption the command
starts from the beginning. It takes a few minutes on one core; see
`disco_rl.meta_training.imitation`.
"""

import dataclasses
import pathlib
import time
from typing import Any

from absl import flags

from configs import meta_training
from disco_rl import paths
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

_STEPS = flags.DEFINE_integer(
  'steps', 8000, 'Steps of supervised learning.', lower_bound=1
)


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Fits a rule and writes it."""
  # Imported late: a mistyped flag should not wait for JAX to load.
  import jax

  from disco_rl.meta_training import imitation
  from disco_rl.meta_training import meta_trainer
  from disco_rl.meta_training import rule_files
  from disco_rl.runtime import json_files
  from disco_rl.runtime import progress
  from disco_rl.runtime import workdirs
  from disco_rl.update_rules import cards
  from disco_rl.update_rules import registry

  for name in ('config.json', 'checkpoints'):
    if (workdir / name).exists():
      fail(
        f'{workdir} holds a run of another launcher, as it has {name}: its '
        'rule.npz would be overwritten. Choose another --workdir.'
      )
  with in_one_line(ValueError, ImportError):
    config = meta_trainer.config_of(settings)
    rule = config.rule_settings
    begin = time.perf_counter()
    path = workdir / 'rule.npz'
    with (
      workdirs.locked(workdir),
      progress.Progress(
        _STEPS.value, unit='step', description='imitation', status='compiling'
      ) as bar,
    ):
      params = imitation.train(
        jax.random.key(config.seed),
        rule.network,
        _STEPS.value,
        lambda error, signal: bar.advance(1, error=error, signal=signal),
      )
      registry.save(path, rule, jax.device_get(params))
      card = cards.Card(
        name=workdir.resolve().name,
        description=(
          'Imitates the policy gradient: fitted by '
          f'{_STEPS.value:,} steps of supervised learning on random inputs. No '
          'environment and no agent took part.'
        ),
        seed=config.seed,
        settings=meta_trainer.filled(settings, config),
        **rule_files.provenance(time.perf_counter() - begin, devices=1),
        sha256=cards.sha256_of(path),
      )
      json_files.write(cards.path_of(path), dataclasses.asdict(card))
  print(paths.shown(path))


if __name__ == '__main__':
  common.run(main, base=meta_training)
