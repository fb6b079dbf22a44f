r"""Answers one prompt, each author in a colour of its own.

  python -m launch.generate --config=configs/X.py --workdir=DIR \
    --prompt='What is 3 + 4?'

With the newest checkpoint of a run, or, without --workdir, the weights that
the config starts from. The prompt may come on stdin. The config's instruction
and chat template are added; --config.data.chat=False gives the text as it is.
"""

import sys

from absl import flags
from ml_collections import config_flags

from launch import command
from launch import saved_step

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'configs/NAME.py, or configs/NAME.py:ARG', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of a run.')
_PROMPT = flags.DEFINE_string('prompt', None, 'The problem; stdin if unset.')
_GOLD = flags.DEFINE_string('gold', '', 'Its answer, to have it graded.')
_MODEL = flags.DEFINE_enum(
  'model', 'pair', ['pair', 'senior', 'junior'], 'Who writes.'
)
_SAMPLES = flags.DEFINE_integer('samples', 1, 'Responses.', lower_bound=1)
_TEMPERATURE = flags.DEFINE_float(
  'temperature', None, '0 is greedy; that of config.eval if unset.'
)
_TOP_K = flags.DEFINE_integer('top_k', None, 'Likewise; 0 keeps all.')
_TOP_P = flags.DEFINE_float('top_p', None, 'Likewise; 1 keeps all.')
_MAX_TOKENS = flags.DEFINE_integer(
  'max_tokens', None, 'Tokens of a response; as in training if unset.'
)
flags.adopt_module_key_flags(saved_step)


def main():
  from tandem import generate
  from tandem.analysis import trace
  from tandem.training import console

  config = _CONFIG.value
  if _MAX_TOKENS.value is not None:
    config.rollout.max_response = _MAX_TOKENS.value
  prompt = _PROMPT.value
  if prompt is None:
    prompt = sys.stdin.read().rstrip('\n')
  law = {
    'temperature': _TEMPERATURE.value,
    'top_k': _TOP_K.value,
    'top_p': _TOP_P.value,
  }
  console.quiet_libraries()
  records = generate.run(
    config,
    prompt,
    workdir=_WORKDIR.value,
    step=saved_step.STEP.value,
    model=_MODEL.value,
    samples=_SAMPLES.value,
    sampling={name: x for name, x in law.items() if x is not None},
    gold=_GOLD.value,
  )
  print('\n\n'.join(map(trace.trace_ansi, records)))


if __name__ == '__main__':
  command.run(main, 'config')
