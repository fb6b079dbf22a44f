"""Prompts: instruction, template, and those that are too long."""

import pytest
import tokenizers

from tandem import types
from tandem.data import prompts
from tandem.data import quickstart
from tandem.training import contexts
from tests.text import small


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


def test_plain_text_begins_as_the_tokenizer_has_it():
  """Llama 3's puts begin-of-text there; its chat template does so itself."""
  backend = small.byte_bpe()
  backend.post_processor = tokenizers.processors.TemplateProcessing(
    single='<|im_start|> $A <|end|>',
    special_tokens=[
      (name, backend.token_to_id(name)) for name in ('<|im_start|>', '<|end|>')
    ],
  )
  begins = small.fast(backend, chat_template=small.CHAT)
  build = lambda text, **options: [
    begins.decode(prompt.ids)
    for prompt in prompts.build(
      [problem(text)], begins, instruction='', **options
    )[0]
  ]
  assert build('12 km', max_prompt=9, chat=False) == ['<|im_start|>12 km']
  (chat,) = build('12 km', max_prompt=99)
  assert chat.startswith('<|im_start|>user')
  with pytest.raises(ValueError, match='empty prompt'):
    build('', max_prompt=9, chat=False)
  with pytest.raises(ValueError, match='none is left'):
    build('1', max_prompt=1, chat=False, overlong='drop')
  # A teacher reads the same.
  for chat in (True, False):
    context = contexts.Contexts(
      tokenizer=begins,
      instruction='',
      chat=chat,
      teacher=True,
      teacher_thinking=False,
      privileged='none',
      max_prompt=99,
      max_extra=0,
    )
    ((prompt,), _) = prompts.build(
      [problem('12 km')], begins, instruction='', max_prompt=99, chat=chat
    )
    theirs = context([prompt], group=1)['teacher']
    assert theirs.ids[0, : theirs.lengths[0]].tolist() == list(prompt.ids)


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
