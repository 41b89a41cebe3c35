"""Trains agents with a fixed rule, several seeds side by side.

  python -m launch.evaluate --config=configs/evaluate.py:catch \
    --config.rule=disco103 --workdir=runs/catch

Any setting of the config can be given as a flag, --config.learning_rate=1e-3.
The same command again resumes an interrupted run.
"""

import dataclasses
import pathlib
import re
import sys
from typing import Any
from typing import NoReturn

from absl import app
from absl import flags
from absl import logging
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Settings: a file, a colon, and what to start from.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir',
  None,
  'Folder of the run; resumed if it holds one.',
  required=True,
)
flags.mark_flag_as_required('config')

_SEE_CONFIG = 'The file that --config names lists all settings.'


def parse_flags(argv: list[str]) -> list[str]:
  """Parses as absl does, but says in one line what is wrong."""
  try:
    rest = flags.FLAGS(argv)
    _CONFIG.value.to_dict()  # A missing file shows only when it is used.
  except (flags.Error, OSError) as error:
    # Of an error in the config's file the message holds the whole traceback.
    _exit(re.sub(r'^\w+Error: ', '', str(error).strip().splitlines()[-1]))
  except (AttributeError, KeyError) as error:
    # So answers ml_collections if the config has no such setting.
    answer = error.args[0]
    name, *nearest = str(getattr(answer, 'args', [answer])[0]).splitlines()
    _exit(f'Unknown setting {name}. {" ".join(nearest) or _SEE_CONFIG}')
  if rest[1:]:
    _exit(f'Not understood: {" ".join(rest[1:])}')
  return rest


def _exit(reason: object) -> NoReturn:
  """Ends the program with one line on the standard error stream."""
  sys.exit('error: ' + ' '.join(str(reason).split()))


def to_config(settings: dict[str, Any]) -> Any:
  """Sorts flat settings into an `EvaluationConfig`: run, agent and rule."""
  from disco_rl import agent
  from disco_rl.evaluation import runner
  from disco_rl.networks import agent_network

  settings = dict(settings)

  def take(record: type) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(record)}
    return {name: settings.pop(name) for name in names & settings.keys()}

  network = agent_network.AgentNetworkConfig(
    **take(agent_network.AgentNetworkConfig)
  )
  agent_config = agent.AgentConfig(**take(agent.AgentConfig), network=network)
  return runner.EvaluationConfig(
    **take(runner.EvaluationConfig), agent=agent_config, rule_settings=settings
  )


def main(argv: list[str]) -> None:
  """Builds and runs."""
  del argv
  if not flags.FLAGS['verbosity'].present:
    # Orbax reports each of its steps as INFO.
    logging.set_verbosity(logging.WARNING)
  # Here, not above: a mistyped flag should not wait for JAX to load.
  from disco_rl.evaluation import runner

  settings, workdir = _CONFIG.value.to_dict(), pathlib.Path(_WORKDIR.value)
  try:
    evaluation = runner.Evaluation(to_config(settings))
  except (ValueError, OSError, ImportError) as error:
    _exit(error)
  try:
    evaluation.run(workdir, settings)
  except (runner.WorkdirError, runner.NonFiniteError, OSError) as error:
    _exit(error)
  print((workdir / 'summary.json').read_text(), end='')


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
