"""Names of the folders of runs."""

import pathlib

from disco_rl.evaluation import runs


def test_long_names_of_folders_are_cut_and_stay_different(
  tmp_path: pathlib.Path,
) -> None:
  """As those of rules in deep folders."""
  path = f'rule={"deep/" * 60}'
  names = {runs.slug(f'{path}{x}/rule.npz') for x in ('a', 'b', 'a-', 'c')}
  assert len(names) == 4
  for name in names:
    assert name.startswith('rule-deep-deep')
    assert len(name) == 200
    (tmp_path / name).mkdir()
  # As earlier versions, which runs are resumed in.
  assert runs.slug('rule=runs/a/rule.npz') == 'rule-runs-a-rule'
