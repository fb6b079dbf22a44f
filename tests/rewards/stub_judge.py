"""A judge for tests: does what the answer says, in a worker."""

import os
import sys


def judge(gold, answer, question, mode):
  if answer == 'hang':
    # One C call that holds the interpreter lock for minutes.
    return str(7 ** (3 * 10**8))
  if answer == 'crash':
    os.abort()
  if answer == 'raise':
    raise RuntimeError('not an answer')
  if answer == 'hoard':
    return bytearray(64 << 30) and 'equal'
  if answer == 'modules':
    heavy = {'jax', 'transformers', 'torch', 'flax'} & set(sys.modules)
    return 'refused' if heavy else 'equal'
  return 'equal' if gold == answer else 'different'
