"""Small tokenizers that the text tests make for themselves."""

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import trainers
import transformers

CORPUS = [
  'The answer is 42, unbelievable as it is.\n\nSo \\frac{1}{2} of 12 km.',
  '数学の問題 is hard.\n\n数学 is 好き. 😀 and 😁 are faces.\n',
  'We have \\sqrt{2} and 100km in 2024.\n\n a  7 b  8  indented  text\n\n',
] * 4
CHAT = (
  "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
  '<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n'
  '{% if enable_thinking is defined and not enable_thinking %}<think>\n\n'
  '</think>\n\n{% endif %}{% endif %}'
)


def byte_bpe(vocab=420, special=('<|end|>', '<|im_start|>', '<|im_end|>')):
  """A byte-level BPE with SmolLM2's splitter, trained on CORPUS."""
  bpe = tokenizers.Tokenizer(models.BPE())
  bpe.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  bpe.decoder = decoders.ByteLevel()
  bpe.train_from_iterator(
    CORPUS,
    trainers.BpeTrainer(
      vocab_size=vocab,
      special_tokens=list(special),
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      show_progress=False,
    ),
  )
  return bpe


def spelled(surfaces):
  """A tokenizer with exactly these surfaces as its ids, and no merges."""
  return tokenizers.Tokenizer(
    models.BPE(vocab={s: i for i, s in enumerate(surfaces)}, merges=[])
  )


def fast(backend, **options):
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=backend, clean_up_tokenization_spaces=False, **options
  )
