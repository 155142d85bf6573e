"""Generated sentences whose label is told by a word in them."""

import random

from mile.networks import Attention

SMALL = Attention(vocabulary=300, context=12, width=8, heads=2, attention_width=8, hidden=(4,))
BUDGET = {"n_chains": 2, "warmup_steps": 60, "sampling_steps": 40, "n_draws": 20, "max_epochs": 30, "random_state": 0}
_TELLING = {"good": ["good", "lovely", "brilliant"], "bad": ["bad", "dull", "awful"]}
_OTHERS = ["the", "film", "was", "a", "very", "story", "and", "actors", "with", "music"]


def some_sentences(n_texts: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return texts and labels, "bad" or "good"."""
    rng = random.Random(seed)
    labels = [rng.choice(sorted(_TELLING)) for _ in range(n_texts)]
    texts = []
    for label in labels:
        words = [*rng.choices(_OTHERS, k=rng.randint(0, 6)), *rng.choices(_TELLING[label], k=2)]
        rng.shuffle(words)
        texts.append(" ".join(words))
    return texts, labels
