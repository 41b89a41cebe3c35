"""The names of the folders of planned runs, and when these are over."""

import pathlib

from disco_rl.evaluation import planned_runs
from disco_rl.runtime import json_files


def test_long_names_of_folders_are_cut_and_stay_different(
  tmp_path: pathlib.Path,
) -> None:
  """Names like those of rules in deep folders."""
  path = f'rule={"deep/" * 60}'
  names = {
    planned_runs.slug(f'{path}{x}/rule.npz') for x in ('a', 'b', 'a-', 'c')
  }
  assert len(names) == 4
  for name in names:
    assert name.startswith('rule-deep-deep')
    assert len(name) == 200
    (tmp_path / name).mkdir()
  # As earlier versions, which runs are resumed in.
  assert planned_runs.slug('rule=runs/a/rule.npz') == 'rule-runs-a-rule'


def test_a_run_is_over_once_it_has_all_its_updates_or_has_failed(
  tmp_path: pathlib.Path,
) -> None:
  """Also one of a single update, and discoveries that no longer improve."""
  for updates in (1, 3):
    run = planned_runs.Run(
      'run', tmp_path / f'{updates}', 'rule', {'updates': updates}
    )
    assert not run.is_over
    run.folder.mkdir()
    for done in (updates - 1, updates):
      json_files.write(run.folder / 'summary.json', {'updates': done})
      assert run.is_over == (done == updates)
  settings = {'meta_steps': 9, 'held_out_patience': 2}
  discovery = planned_runs.Run('run', tmp_path / 'discovery', 'rule', settings)
  discovery.folder.mkdir()
  for done, since, is_over in ((5, 1, False), (5, 2, True), (9, 0, True)):
    summary = {'meta_steps': done, 'evaluations_since_rule': since}
    json_files.write(discovery.folder / 'summary.json', summary)
    assert discovery.is_over == is_over
    settings['held_out_patience'] = 0  # It may be set later.
    assert discovery.is_over == (done == 9)
    settings['held_out_patience'] = 2
  failed = planned_runs.Run('run', tmp_path / 'failed', 'rule', {'updates': 1})
  failed.fail('its environment ended')
  assert failed.is_over
