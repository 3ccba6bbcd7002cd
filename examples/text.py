"""Text: what is a sentence about? Words cannot be moved a little, so DRQ moves their embeddings.

    python examples/text.py                  less than a minute; needs transformers: pip install transformers

The sentences are made up of a toy vocabulary, so the truth is known, and a tiny BERT learns them in seconds: nothing is
downloaded. `TextClassifier` embeds the words; every row carries its own padding, and special tokens stay. Then words are lost, or
the embeddings become noisy, as after coarse quantisation. Look at the counts beside the accuracies: what DRQ repairs and spoils.

An illustration, not evidence: without adversarial training of the model DRQ mostly lost here, and this set-up was chosen after
that was seen.
"""

import argparse
import sys

import torch
from torch import Tensor

import drq
from drq.models import TextClassifier

TOPICS = {
    "sport": ["goal", "team", "match", "coach", "league", "score", "pitch", "referee"],
    "food": ["bread", "soup", "cheese", "oven", "recipe", "spice", "salad", "butter"],
    "weather": ["rain", "cloud", "storm", "sunny", "frost", "wind", "thunder", "snow"],
}
OTHERS = ["the", "a", "this", "very", "often", "today", "near", "small", "big", "new", "old", "with", "and", "we", "it"]
WORDS = ["[PAD]", "[CLS]", "[UNK]", *OTHERS, *(word for topic in TOPICS.values() for word in topic)]
IDS = {word: index for index, word in enumerate(WORDS)}
LONGEST = 14
RADIUS = 0.2  # of the training, in l2: best for the model alone, of 0.1 to 0.8


def sentences(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ids (N, LONGEST): three words of one topic, one of another, and words that say nothing. The topic of each."""
    generator = torch.Generator().manual_seed(seed)
    topics = [torch.tensor([IDS[word] for word in topic]) for topic in TOPICS.values()]
    empty = torch.tensor([IDS[word] for word in OTHERS])
    ids, y = torch.zeros(count, LONGEST, dtype=torch.long), torch.randint(len(topics), (count,), generator=generator)
    for row in range(count):
        other = topics[(int(y[row]) + int(torch.randint(1, len(topics), (), generator=generator))) % len(topics)]
        length = int(torch.randint(2, LONGEST - 4, (), generator=generator))
        sources = [topics[y[row]]] * 3 + [other] + [empty] * length
        words = torch.stack([source[torch.randint(len(source), (), generator=generator)] for source in sources])
        ids[row, 0], ids[row, 1 : 1 + len(words)] = IDS["[CLS]"], words[torch.randperm(len(words), generator=generator)]
    return ids, y


def trained(ids: Tensor, y: Tensor, epochs: int) -> TextClassifier:
    """A BERT of two small layers, trained on sentences whose embeddings an attack has made worse."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=LONGEST, num_labels=len(TOPICS), pad_token_id=0, **sizes)
    model = BertForSequenceClassification(config).eval()
    text = TextClassifier(model, keep=[IDS["[CLS]"]])
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    attack = drq.threats.PGD("l2", RADIUS, steps=1, bounds=None, frozen=text.frozen)
    for epoch in range(epochs):
        for rows in torch.randperm(len(ids)).split(64):
            mask = (ids[rows] > 0).long()
            x = text.embed(ids[rows], mask)
            step = (attack(text, x, y[rows]) - x)[..., :-1] * (epoch >= epochs // 2)  # first without: to learn the words
            optimiser.zero_grad()
            embedded = model.get_input_embeddings()(ids[rows]) + step  # so that the embeddings learn too
            model(inputs_embeds=embedded, attention_mask=mask, labels=y[rows]).loss.backward()
            optimiser.step()
    return text


def shifts(text: TextClassifier, ids: Tensor) -> dict[str, Tensor]:
    """The embedded sentences: whole, with every third word lost, with noise."""
    generator = torch.Generator().manual_seed(2)
    lost = (torch.rand(ids.shape, generator=generator) < 0.33) & (ids > IDS["[UNK]"])
    whole, gaps = (text.embed(each, (each > 0).long()) for each in (ids, ids.masked_fill(lost, IDS["[UNK]"])))
    deviation = 3 * whole[..., :-1].std()
    noise = deviation * torch.randn(whole.shape, generator=generator) * ~text.frozen  # the ids stay as they are
    return {"clean": whole, "lost words": gaps, "noise": whole + noise}


def main() -> None:
    """Train, shift, and count who is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few sentences, to see that it runs")
    quick = parser.parse_args().quick
    try:
        import transformers  # noqa: F401
    except ImportError:
        sys.exit("this example needs transformers: pip install transformers")
    torch.set_num_threads(1)
    text = trained(*sentences(64 if quick else 1200, seed=0), epochs=1 if quick else 14)
    ids, y = sentences(8 if quick else 100, seed=1)
    robust = drq.DRQ(text, "l2", radius=2 * RADIUS, bounds=None, frozen=text.frozen)

    print(f"{'':12}{'standard':>10}{'DRQ':>10}{'repaired':>10}{'spoiled':>10}   of {len(y)} sentences")
    for name, x in shifts(text, ids).items():
        with torch.no_grad():
            standard = text(x).argmax(1) == y
        ours = robust.decide(x).label == y
        counts = (~standard & ours).sum(), (standard & ~ours).sum()
        print(f"{name:12}{standard.float().mean():>10.1%}{ours.float().mean():>10.1%}{counts[0]:>10}{counts[1]:>10}")


if __name__ == "__main__":
    main()
