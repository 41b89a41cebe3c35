"""Random chains, with rewards after delays of any length.

  random_chain     a new chain for each agent
  random_chain/17  chain number 17 for all agents, by the same generator

They resemble the delayed chains of LPG (Oh et al., 2020, "Discovering
Reinforcement Learning Algorithms", appendix).
"""

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.environments import family
from disco_rl.environments import scores
from disco_rl.environments.jax_native import chain
from disco_rl.environments.jax_native import task_distribution

LENGTHS = (5, 50)  # Both are possible.
NUM_BITS = 20
NUM_ACTIONS = 2


@types.record
class RandomChain(task_distribution.TaskDistribution):
  """Chains in which the first action determines the last reward, +1 or -1.

  A chain is drawn as follows, independently.
    The length of all its episodes is uniform in 5 .. 50.
    One of the two actions, with equal probability, is better.
    With probability 1/2 all other rewards are +1 or -1 at random, otherwise 0.
    With probability 1/2 the 20 distractor bits are random, otherwise 0.

  The observation is that of `chain.Chain`: [50 + 1 + 2 + 20].
  """

  def draw(self, key: types.Array) -> chain.Chain:
    """Draws a chain; see the class."""
    length_key, coin_key = jax.random.split(key)
    del key
    length = jax.random.randint(length_key, (), LENGTHS[0], LENGTHS[1] + 1)
    is_first, is_noisy, has_bits = jax.random.bernoulli(coin_key, shape=(3,))
    better = jnp.where(is_first, jnp.float32(1.0), jnp.float32(-1.0))
    return chain.Chain(
      payoff=jnp.stack([better, -better])[None],
      lure=jnp.zeros(NUM_ACTIONS),
      min_length=length,
      max_length=length,
      decision_step=jnp.int32(0),
      noise=is_noisy.astype(jnp.float32),
      bit_rate=0.5 * has_bits.astype(jnp.float32),
      hides_choice=jnp.bool_(False),
      num_positions=LENGTHS[1],
      num_bits=NUM_BITS,
    )


_SCALE = scores.Scale(
  scores.Benchmark(
    'random_chain',
    'Random chains, normalized',
    '0 is random play (return 0), 1 the better action (return 1), averaged '
    'over the noise.',
    is_low_random=True,
    is_high_best=True,
  ),
  low=0.0,
  high=1.0,
)
FAMILIES = {
  'random_chain': family.Family(
    form='random_chain, random_chain/NUMBER or random_chain/of_SIZE (of_16)',
    kind='device',
    names=lambda: ('random_chain',),
    find=lambda variant, _: task_distribution.find(RandomChain, variant),
    find_scale=lambda _: _SCALE,
  )
}
