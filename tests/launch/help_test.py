"""What --help shows: the launcher's flags, then the settings of its config."""

import re
from types import ModuleType

from absl.testing import flagsaver
import launching
import pytest

from configs import evaluate
from configs import meta_training
from configs import protocol
from launch import common
from launch import compare  # noqa: F401, its flags are shown.
from launch import help


def shown(launcher: str, *arguments: str) -> str:
  ended = launching.run_python('-m', f'launch.{launcher}', *arguments)
  assert ended.returncode == 0, ended.stderr
  assert not ended.stderr
  assert max(map(len, ended.stdout.splitlines())) <= 80
  return ended.stdout


def test_flags_come_before_the_settings_and_those_of_libraries_not() -> None:
  text = shown('meta_train', '--help')
  assert text.startswith('Discovers an update rule')
  places = [
    text.index(part)
    for part in ('\nFlags:', '\n  --workdir ', 'Settings,', 'meta_steps=1000  ')
  ]
  assert places == sorted(places)
  assert 'alsologtostderr' not in text
  # The example is as it is typed.
  assert '--config=quickstart \\\n    --workdir' in text


def test_launchers_without_a_config(
  capsys: pytest.CaptureFixture[str],
) -> None:
  with pytest.raises(SystemExit):
    common.parse_flags(['compare', '-h'])
  text = capsys.readouterr().out
  assert re.search(r'--output +File', text)
  assert 'Settings, ' not in text


@pytest.mark.parametrize('base', [meta_training, evaluate])
def test_every_setting_is_shown_with_the_values_of_the_given_config(
  base: object, capsys: pytest.CaptureFixture[str]
) -> None:
  name = 'quickstart' if base is meta_training else 'evaluate:quickstart'
  path = launching.REPOSITORY / 'configs' / f'{name}'.replace(':', '.py:')
  argument = f'--config={path}' + ('' if ':' in name else '.py')
  argv = ['launcher', argument, '--config.batch_size=7', '--help']
  with pytest.MonkeyPatch.context() as patch, flagsaver.flagsaver():
    patch.setattr('sys.argv', argv)
    with pytest.raises(SystemExit) as ended:
      common.parse_config_flags(argv, base)  # type: ignore[arg-type]
  assert ended.value.code == 0
  text = capsys.readouterr().out
  for setting in base.base():  # type: ignore[attr-defined]
    assert setting == 'preprocessing' or f'\n  {setting}=' in text, setting
  assert '\n  batch_size=7 ' in text
  discount = 0.97 if base is meta_training else 0.997  # Of the quick start.
  assert f'\n  discount={discount} ' in text
  assert '\n  preprocessing.atari.frame_skip=4 ' in text


@pytest.mark.parametrize('base', [meta_training, evaluate, protocol])
def test_every_setting_is_described(base: ModuleType) -> None:
  for settings in help.all_sections(base).values():
    for setting in settings:
      assert setting.meaning, setting.name
