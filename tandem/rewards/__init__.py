"""Answer checking: one grader for training and evaluation, in processes."""

from tandem.rewards.answer import REASONS
from tandem.rewards.verifier import Verifier
from tandem.rewards.verifier import grade

__all__ = ['REASONS', 'Verifier', 'grade']
