r"""Plays episodes with a trained agent, and draws them.

  disco-rl play --workdir=runs/catch
  disco-rl play --workdir=runs/catch --best
  disco-rl play --agent=agent.npz --episodes=10 --to=episodes.mp4
  disco-rl play --workdir=runs/objects --episodes=100 \
    --play_in=dmlab/rooms_collect_good_objects_test

The agent is from a run of disco-rl train, which may still be in progress, or
from a file of `Trainer.save` or `Policy.save`. With --best it is as in its best
evaluation during the run, see --config.evaluate_every. It plays in a new
environment, without learning. The command prints its returns and, in NetHack,
the last screen of each episode. It writes the pictures as a GIF, or as an MP4
if the file name ends in .mp4 (which requires the extra `video`).
"""

from collections.abc import Sequence
import pathlib
import sys
from typing import TYPE_CHECKING
from typing import Any

from absl import flags

from disco_rl import paths
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

if TYPE_CHECKING:
  from disco_rl.api import policy as policy_lib
  from disco_rl.training import whole_episodes

_WORKDIR = common.workdir_flag()
_AGENT = flags.DEFINE_string(
  'agent', None, 'File of an agent or a policy, or an address, hf://...'
)
_SEED = flags.DEFINE_integer(
  'seed',
  None,
  'Seed of one of several agents; by default the first, or the best of all.',
  lower_bound=0,
)
_BEST = flags.DEFINE_bool(
  'best', False, 'Take the agent as it was in its best evaluation.'
)
_PLAY_IN = flags.DEFINE_string(
  'play_in',
  None,
  'Environment to play in; by default the one of training.',
)
_EPISODES = flags.DEFINE_integer(
  'episodes', 3, 'Number of episodes.', lower_bound=1
)
_GREEDY = flags.DEFINE_bool(
  'greedy', False, 'Take the most likely action instead of sampling.'
)
_MAX_STEPS = flags.DEFINE_integer(
  'max_steps',
  None,
  'Maximum number of steps of an episode; by default 30,000.',
  lower_bound=1,
)
_TO = common.define_path(
  'to', 'GIF or MP4 file; by default play.gif in the folder.'
)
# The seed of the environments and the sampled actions.
_PLAY_SEED = 0


def main(argv: Sequence[str]) -> None:
  """Plays episodes, prints the results and writes the pictures."""
  named = [x for x in (_WORKDIR.value, _AGENT.value) if x is not None]
  if len(named) != 1:
    fail('Name the agent by --workdir=RUN or by --agent=FILE.')
  folder = pathlib.Path(paths.absolute(named[0]))
  if _AGENT.value:
    # An agent from a hub has no folder on this machine.
    folder = pathlib.Path.cwd() if '://' in named[0] else folder.parent
  to = pathlib.Path(_TO.value or folder / 'play.gif')
  common.begin(argv, _WORKDIR.value)
  # Imported late: a mistyped flag should not wait for JAX to load.
  import disco_rl
  from disco_rl.runtime import video

  with in_one_line(ValueError, ImportError):
    try:
      video.check_name(to)
    except OSError as error:
      if _TO.value:
        raise
      fail(f'{error}. Name another file for the pictures: --to=FILE.')
    if not _TO.value and to.is_symlink():
      raise ValueError(
        f'{to} is a link, and what it leads to would be overwritten: remove '
        'it, or name the file by --to=FILE.'
      )
    policy = disco_rl.load_policy(
      named[0],
      seed=_SEED.value,
      best=_BEST.value,
      environment=_PLAY_IN.value,
    )
    episodes, film = _play(policy)
    _report(episodes, film)
    if film is not None:
      video.write(to, film.frames, film.frames_per_second)
      print(paths.shown(to))


def _play(
  policy: 'policy_lib.Policy',
) -> 'tuple[whole_episodes.Episodes, whole_episodes.Film | None]':
  """Plays with pictures, or without them if rendering is not possible."""
  from disco_rl.environments import base
  from disco_rl.environments.host import adapters

  how: dict[str, Any] = {'greedy': _GREEDY.value, 'seed': _PLAY_SEED}
  if _MAX_STEPS.value is not None:
    how['max_steps'] = _MAX_STEPS.value
  try:
    return policy.film(_EPISODES.value, **how)
  except (base.RenderError, adapters.HostEnvironmentError) as error:
    print(f'No pictures: {error}', file=sys.stderr)
  return policy.evaluate(_EPISODES.value, **how), None


def _report(
  episodes: 'whole_episodes.Episodes', film: 'whole_episodes.Film | None'
) -> None:
  """Prints the results."""
  for screen in film.screens if film else ():
    print(screen)
  for i, (total, length) in enumerate(
    zip(episodes.returns.tolist(), episodes.lengths.tolist()), start=1
  ):
    print(f'episode {i}: return {total:.4g}, {length} steps')
  print(episodes)
  if film is not None and film.is_cut:
    print(
      f'The episodes are longer than {len(film.frames)} pictures: later ones '
      'are left out.',
      file=sys.stderr,
    )


if __name__ == '__main__':
  common.start(main)
