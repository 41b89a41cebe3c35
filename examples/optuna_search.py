"""Searches settings of a rule with Optuna, which stops poor trials early.

  pip install optuna
  python -m examples.optuna_search

Each trial trains three agents, which differ only in their seeds, and is judged
by new episodes.
"""

import argparse

import optuna

import disco_rl


# Shown as: objective
def objective(trial: optuna.Trial, rule: str, steps: int, parts: int) -> float:
  """Trains agents with the settings of a trial; returns their mean return."""
  trainer = disco_rl.Trainer(
    'catch/4x4',
    rule,
    seeds=3,
    learning_rate=trial.suggest_float('learning_rate', 1e-4, 1e-1, log=True),
  )
  for part in range(parts):
    metrics = trainer.train(steps=steps // parts, show_progress=False)
    trial.report(metrics['return'][:, -1].mean(), step=part)
    if trial.should_prune():
      raise optuna.TrialPruned
  returns = [trainer.policy(seed).evaluate(50).mean for seed in range(3)]
  return sum(returns) / 3


# End of: objective


def main() -> None:
  """Runs the trials, and prints the best settings."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rule', default='general')
  parser.add_argument('--trials', type=int, default=8)
  parser.add_argument('--steps', type=int, default=30_000)
  parser.add_argument('--parts', type=int, default=3)
  flags = parser.parse_args()

  # Shown as: study
  study = optuna.create_study(
    direction='maximize',
    sampler=optuna.samplers.TPESampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
  )
  study.optimize(
    lambda trial: objective(trial, flags.rule, flags.steps, flags.parts),
    n_trials=flags.trials,
  )
  # End of: study
  print(f'mean return {study.best_value:.2f} with {study.best_params}')


if __name__ == '__main__':
  main()
