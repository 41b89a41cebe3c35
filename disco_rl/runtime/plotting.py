"""The look that all figures share."""

from matplotlib import axes
from matplotlib import figure

from disco_rl.runtime import files

# Okabe and Ito's colours, which the colour-blind can tell apart; the yellow is
# left out because thin lines of it vanish on white.
_COLOURS = (
  '#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000'
)  # fmt: skip
INK = '#333333'
FAINT = '#BBBBBB'


def colour(index: int) -> str:
  """The colour of the index-th curve."""
  return _COLOURS[index % len(_COLOURS)]


def tidy(ax: axes.Axes) -> None:
  """Takes away what is not data."""
  ax.grid(color='#E6E6E6', linewidth=0.8)
  ax.set_axisbelow(True)
  ax.spines[['top', 'right']].set_visible(False)
  ax.spines[['left', 'bottom']].set_color('#999999')
  ax.tick_params(color='#999999', labelcolor=INK)


def save(fig: figure.Figure, path: files.PathLike) -> None:
  """Writes a figure as PNG, atomically."""
  with files.replacing(path) as temporary:
    fig.savefig(temporary, format='png', dpi=200)
