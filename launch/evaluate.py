"""Trains agents with a fixed rule, several seeds side by side.

  python -m launch.evaluate --config=configs/evaluate.py:catch \
    --config.rule=disco103 --workdir=runs/catch

Any setting of the config can be given as a flag, --config.learning_rate=1e-3.
The same command again resumes an interrupted run.
"""

import dataclasses
import json
import sys
from typing import Any

from absl import app
from absl import flags
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Settings: a file, a colon, and what to start from.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the run; resumed if it holds one.'
)


def _build(settings: dict[str, Any]) -> Any:
  """Sorts the flat settings into those of the run, the agent and the rule."""
  # Here, not above: a mistyped flag should not wait for JAX to load.
  from disco_rl import agent
  from disco_rl.evaluation import runner
  from disco_rl.networks import agent_network

  settings = dict(settings)

  def take(record: type, **others: Any) -> Any:
    names = {field.name for field in dataclasses.fields(record)}
    taken = {name: settings.pop(name) for name in names & settings.keys()}
    return record(**taken, **others)

  network = take(agent_network.AgentNetworkConfig)
  agent_config = take(agent.AgentConfig, network=network)
  names = {f.name for f in dataclasses.fields(runner.EvaluationConfig)}
  of_the_run = {name: settings.pop(name) for name in names & settings.keys()}
  return runner.Evaluation(
    runner.EvaluationConfig(
      **of_the_run, agent=agent_config, rule_settings=settings
    )
  )


def main(argv: list[str]) -> None:
  """Builds and runs."""
  if len(argv) > 1:
    raise app.UsageError(f'Not understood: {" ".join(argv[1:])}')
  settings = _CONFIG.value.to_dict()
  try:
    evaluation = _build(settings)
    summary = evaluation.run(_WORKDIR.value, settings)
  except (ValueError, OSError, ImportError) as error:
    sys.exit(f'error: {error}')
  print(json.dumps(summary, indent=2))


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)
