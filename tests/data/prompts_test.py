"""Prompts: instruction, template, and those that are too long."""

import pytest

from tandem import types
from tandem.data import prompts
from tandem.data import quickstart


@pytest.fixture(scope='module')
def tokenizer():
  return quickstart.tokenizer()


def problem(text, name='p'):
  return types.Problem(id=name, text=text, answer='1')


def test_text_instruction_and_template(tokenizer):
  built, dropped = prompts.build(
    [problem('Two figs?')], tokenizer, max_prompt=200
  )
  (prompt,) = built
  assert dropped == 0
  assert prompt.text == f'Two figs?{prompts.INSTRUCTION}\n'
  assert '\\boxed{}' in prompt.text
  assert tokenizer.decode(prompt.ids) == prompt.text
  assert prompt.problem.text == 'Two figs?'


def test_plain_text_without_a_template(tokenizer):
  ((prompt,), _) = prompts.build(
    [problem('Two figs?')], tokenizer, max_prompt=9, instruction='', chat=False
  )
  assert prompt.text == 'Two figs?'


def test_a_long_prompt_is_an_error_up_front(tokenizer):
  rows = [problem('fig'), problem('fig ' * 30, 'long'), problem('fig ' * 9)]
  with pytest.raises(ValueError) as error:
    prompts.build(rows, tokenizer, max_prompt=8, instruction='')
  told = str(error.value)
  assert (
    '2 of 3 prompts' in told and "'long'" in told and 'max_prompt=8' in told
  )


def test_long_prompts_are_dropped_and_counted(tokenizer, caplog):
  rows = [
    problem('fig', 'a'),
    problem('fig ' * 30, 'long'),
    problem('nut', 'b'),
  ]
  with caplog.at_level('WARNING'):
    built, dropped = prompts.build(
      rows, tokenizer, max_prompt=8, instruction='', overlong='drop'
    )
  assert dropped == 1
  assert [p.problem.id for p in built] == ['a', 'b']
  assert "'long'" in caplog.text and 'dropped' in caplog.text


def test_the_limit_itself_fits(tokenizer):
  ((prompt,), _) = prompts.build(
    [problem('figs')], tokenizer, max_prompt=99, instruction=''
  )
  size = len(prompt.ids)
  kept, _ = prompts.build(
    [problem('figs')], tokenizer, max_prompt=size, instruction=''
  )
  assert len(kept) == 1
  with pytest.raises(ValueError, match='none is left'):
    prompts.build(
      [problem('figs')],
      tokenizer,
      max_prompt=size - 1,
      instruction='',
      overlong='drop',
    )


def test_unknown_rule_is_refused(tokenizer):
  with pytest.raises(ValueError, match="overlong='cut'.*error.*drop"):
    prompts.build([problem('x')], tokenizer, max_prompt=9, overlong='cut')
