"""Every struct that crosses a file, frozen, with a shape beside each field.

Axes: `B` prompts, `G` group, `N` = B*G rows, `P` prompt tokens, `T` response
tokens, `L` layers, `D` model, `Q` query heads, `K` kv heads, `H` head dim,
`F` hidden, `V` vocab.

Rows of one prompt are a group of G siblings, adjacent in the batch. Every
sequence is padded on the right; what is real is told by lengths, never by the
value of an id.
"""

import dataclasses
from typing import Any

from flax import struct
import jax

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """Llama 3's frequency rescaling (the `llama3` rope type of its configs)."""

  factor: float
  low_freq_factor: float
  high_freq_factor: float
  original_max_position: int


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """What fixes a decoder's shapes and forward; hashable, so static under jit."""

  vocab: int  # V
  dim: int  # D
  num_layers: int  # L
  num_heads: int  # Q
  num_kv_heads: int  # K
  head_dim: int  # H
  hidden: int  # F
  rope_theta: float = 10_000.0
  rope_scaling: RopeScaling | None = None
  norm_eps: float = 1e-6
  tied: bool = True  # the head is the embedding, transposed
  qkv_bias: bool = False  # Qwen2.5
  qk_norm: bool = False  # Qwen3
  max_position: int = 32_768
  family: str = 'qwen3'  # qwen3, qwen2, llama: which config.json is written


FINISH = ('running', 'eos', 'length', 'env')  # `Rollout.finish` indexes this.


@struct.dataclass
class Rollout:
  """Responses as one decode program returns them.

  `logp_*` are under the law tokens were drawn from (tempered, filtered);
  `raw_*` are plain log-softmax. Both models are recorded at every position,
  whoever spoke; entries at or after `lengths` are zero. In solo mode `author`
  and the junior's records are None.
  """

  tokens: Array  # [N, T] int32; 0 at and after lengths
  lengths: Array  # [N] int32; emitted tokens, the ending EOS included
  author: Array | None  # [N, T] bool; True where the senior spoke
  logp_senior: Array  # [N, T] float32
  logp_junior: Array | None  # [N, T] float32
  raw_senior: Array  # [N, T] float32
  raw_junior: Array | None  # [N, T] float32
  finish: Array  # [N] int8; an index into FINISH


@struct.dataclass
class Context:
  """The prompt under which a scorer reads the responses."""

  ids: Array  # [N, P] int32; right-padded
  lengths: Array  # [N] int32; at least 1


@struct.dataclass
class StepBatch:
  """One training step's rows, complete, before any split into micro-batches.

  `scores` holds log-probs of the emitted tokens by name: `rollout` (the
  senior's own record at decode time), `rollout_junior`, and whichever of
  `old`, `reference`, `junior`, `teacher`, `privileged` the loss declares.
  All under one temperature rule, except where the scorer's name says `raw`.
  """

  tokens: Array  # [N, T] int32
  valid: Array  # [N, T] bool; emitted tokens, EOS included
  author: Array | None  # [N, T] bool; None in solo mode
  rewards: Array  # [N] float32
  group_id: Array  # [N] int32; equal and adjacent for siblings
  episode_id: Array  # [N] int32; rows that are turns of one episode share it
  turn: Array  # [N] int32; index of the row inside its episode
  truncated: Array  # [N] bool; the row ended at the length limit
  contexts: dict[str, Context]  # `policy` always; `teacher`, `privileged`
  scores: dict[str, Array]  # name -> [N, T] float32
  group: int = struct.field(pytree_node=False)  # G; 0 where groups are ragged


@struct.dataclass
class Credit:
  """What each token is paid; computed once on the whole step, no gradient.

  Every leaf of `rows` leads with N, so that a micro-batch is a slice of it;
  `scalars` (a controller's coefficients, say) are shared by all rows.
  """

  rows: dict[str, Array]  # name -> [N, ...]
  scalars: dict[str, Array]  # name -> []


@struct.dataclass
class TrainState:
  """What an update changes; functional: (state, batch) -> (state, metrics).

  The step and the number of prompts drawn are the host's, and lie beside this
  in the checkpoint.
  """

  params: Any  # float32 master weights; layers stacked
  opt_state: Any
  loss_state: Any  # the loss variant's own (a controller); {} where it has none
  skipped: Array  # [] int32; updates skipped so far for a non-finite gradient


@dataclasses.dataclass(frozen=True)
class Problem:
  """One row of a data set."""

  id: str
  text: str
  answer: str
  source: str = ''
  solution: str | None = None  # worked solution; warm starts and privilege


@dataclasses.dataclass(frozen=True)
class Verdict:
  """What the grader says of one response.

  reward: 1.0 or 0.0. reason: one of rewards.REASONS. answer: the extracted
  answer text, '' where there was none.
  """

  reward: float
  reason: str
  answer: str = ''
