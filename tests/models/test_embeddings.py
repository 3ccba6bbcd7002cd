"""Text through embeddings: the same answers as through tokens, row by row, and searched by DRQ."""

from types import SimpleNamespace

import pytest
import torch

import drq
from drq.errors import InputError
from drq.models.embeddings import PADDING, TextClassifier

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

PAD, CLS, SEP, WORDS, WIDTH = 0, 1, 2, 40, 16


def classifier(kind: str = "Bert", classes: int = 3, seed: int = 0):
    """A tiny random classifier in float64 whose logits differ from text to text."""
    sizes = {"vocab_size": WORDS, "max_position_embeddings": 32, "num_labels": classes, "pad_token_id": PAD}
    if kind == "DistilBert":
        config = transformers.DistilBertConfig(**sizes, dim=WIDTH, hidden_dim=32, n_layers=2, n_heads=2)
    else:
        more = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = getattr(transformers, f"{kind}Config")(**sizes, **more)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{kind}ForSequenceClassification")(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.data = torch.randn_like(parameter) * 0.5
    return model.double().eval()


def texts(*lengths: int) -> dict[str, torch.Tensor]:
    """[CLS] words [SEP], padded on the right."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.full((len(lengths), max(lengths) + 2), PAD)
    for row, length in enumerate(lengths):
        words = torch.randint(3, WORDS, (length,), generator=generator)
        ids[row, : length + 2] = torch.cat([torch.tensor([CLS]), words, torch.tensor([SEP])])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Roberta", "Electra"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_logits_through_embeddings_are_those_through_tokens(kind, dtype):
    model, tokens = classifier(kind).to(dtype), texts(3, 7, 5, 1)
    text = TextClassifier(model, keep=[CLS, SEP])
    x = text.embed(**tokens)
    assert (x.shape, x.dtype) == ((4, 9, model.get_input_embeddings().embedding_dim + 1), dtype)
    direct = model(**tokens).logits
    assert (text(x) - direct).abs().max() < (1e-10 if dtype == torch.float64 else 1e-5)
    assert (direct.amax(0) - direct.amin(0)).max() > 0.1  # or every text would give the same


def test_a_text_does_not_depend_on_its_batch():
    """Alone, without padding, it has the same logits and the same decision as beside a longer one."""
    text = TextClassifier(classifier(), keep=[CLS, SEP])
    tokens = texts(3, 7, 5)
    robust = drq.DRQ(text, bounds=None, frozen=text.frozen, radius=1.0, prune="none")
    x = text.embed(**tokens)
    together = robust.decide(x)
    for row, length in enumerate((5, 9, 7)):
        alone = text.embed(tokens["input_ids"][row : row + 1, :length])
        assert torch.allclose(text(alone), text(x[row : row + 1]), rtol=0, atol=1e-9)
        decision = robust.decide(alone)
        assert torch.equal(decision.label, together.label[row : row + 1])
        assert torch.allclose(decision.robustness, together.robustness[row : row + 1], rtol=0, atol=1e-6)


def test_rows_may_be_sliced_and_repeated():
    text = TextClassifier(classifier())
    x = text.embed(**texts(3, 7, 5))
    order = torch.tensor([2, 0, 0, 1, 2])
    assert torch.allclose(text(x[order]), text(x)[order], rtol=0, atol=1e-10)


def test_only_words_move():
    """The ids are frozen; padding and kept tokens have no gradient and no effect."""
    text = TextClassifier(classifier(), keep=[CLS, SEP])
    tokens = texts(3, 5)
    x = text.embed(**tokens)
    words = tokens["input_ids"] > SEP
    assert torch.equal(x[..., -1].long(), torch.where(tokens["attention_mask"].bool(), tokens["input_ids"], PADDING))
    assert torch.allclose(text(torch.where(words[..., None], x, x + torch.cat([torch.ones(WIDTH), torch.zeros(1)]))), text(x))
    start = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(text(start)[:, 0].sum(), start)
    assert torch.equal(gradient[..., :-1].abs().amax(-1) > 0, words)
    robust = drq.DRQ(text, bounds=None, frozen=text.frozen, radius=1.0, keep_points=True, prune="none")
    decision = robust.decide(x)
    moved = (decision.explored - x[:, None]).nan_to_num().abs().amax(1)
    assert moved[..., -1].max() == 0
    assert torch.equal(moved.amax(-1) > 1e-9, words)


class Average(torch.nn.Module):
    """A classifier that looks at padding too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = torch.nn.Embedding(WORDS, 4), torch.nn.Linear(4, 2)

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.words

    def forward(self, input_ids=None, inputs_embeds=None, attention_mask=None) -> SimpleNamespace:
        embedded = self.words(input_ids) if inputs_embeds is None else inputs_embeds
        return SimpleNamespace(logits=self.last(embedded.mean(1)), seen=attention_mask)


def test_padding_never_moves():
    tokens = texts(2, 5)
    text = TextClassifier(Average().eval())
    x = text.embed(**tokens).requires_grad_()
    (gradient,) = torch.autograd.grad(text(x)[:, 0].sum(), x)
    assert torch.equal(gradient[..., :-1].abs().amax(-1) > 0, tokens["attention_mask"].bool())


def test_all_tokens_move_where_none_is_kept():
    text = TextClassifier(classifier())
    tokens = texts(3)
    x = text.embed(**tokens).requires_grad_()
    (gradient,) = torch.autograd.grad(text(x)[:, 0].sum(), x)
    assert (gradient[..., :-1].abs().amax(-1) > 0).all()


def test_gradients_are_right():
    text = TextClassifier(classifier(), keep=[CLS])
    x = text.embed(**texts(2))
    change = torch.zeros(1, 4, WIDTH, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda step: text(x + torch.cat([step, step.new_zeros(1, 4, 1)], -1)), change, atol=1e-5)


def test_frozen_is_the_channel_of_ids():
    text = TextClassifier(classifier())
    assert text.frozen.tolist() == [False] * WIDTH + [True]


def test_drq_calibrates_its_radius():
    text = TextClassifier(classifier(), keep=[CLS, SEP])
    decision = drq.DRQ(text, bounds=None, frozen=text.frozen).decide(text.embed(**texts(3, 6)))
    assert decision.found.any()
    assert decision.robustness.shape == (2, 3)


def test_half_precision_is_widened():
    text = TextClassifier(classifier().to(torch.bfloat16))
    x = text.embed(texts(3)["input_ids"])
    assert (x.dtype, text(x).dtype) == (torch.float32, torch.float32)


def test_training_mode_is_that_of_the_model():
    assert TextClassifier(classifier().train()).training
    assert not TextClassifier(classifier()).training


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ({"input_ids": [[1, 5, 2]]}, "input_ids must be whole numbers (N, L), got list"),
        (
            {"input_ids": torch.zeros(3, dtype=torch.long)},
            "input_ids must be whole numbers (N, L), got torch.int64 of shape (3,)",
        ),
        ({"input_ids": torch.zeros(1, 3)}, "input_ids must be whole numbers (N, L), got torch.float32"),
        (
            {"input_ids": torch.tensor([[1, 5]]), "attention_mask": torch.ones(1, 3)},
            "attention_mask must have the shape of input_ids",
        ),
        ({"input_ids": torch.tensor([[1, 5]]), "token_type_ids": torch.tensor([[0, 1]])}, "token_type_ids must be 0"),
    ],
    ids=["list", "one text", "floats", "mask", "pairs"],
)
def test_mistakes_in_tokens(tokens, message):
    with pytest.raises(InputError) as caught:
        TextClassifier(classifier()).embed(**tokens)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_single_texts_of_tokenizers_with_types_are_taken():
    tokens = texts(3)
    text = TextClassifier(classifier())
    assert torch.equal(text.embed(**tokens, token_type_ids=torch.zeros_like(tokens["input_ids"])), text.embed(**tokens))


def test_padding_that_the_model_counts_as_positions_is_refused():
    """RoBERTa numbers its tokens from the first that is no padding, if it knows them; behind embeddings it cannot know."""
    tokens = texts(3, 7)
    short = tokens["input_ids"][0]
    tokens["input_ids"][0] = short.roll(4)
    tokens["attention_mask"][0] = tokens["attention_mask"][0].roll(4)
    with pytest.raises(InputError, match=r"model must answer through embeddings as through tokens, got logits .* apart"):
        TextClassifier(classifier("Roberta")).embed(**tokens)


def test_models_in_training_mode_are_refused():
    with pytest.raises(InputError, match=r"model must be in evaluation mode, got training mode: call model.eval\(\)"):
        TextClassifier(classifier().train()).embed(**texts(3))


def test_other_models_are_refused():
    with pytest.raises(InputError, match=r"model must be a classifier of transformers, .* got Linear"):
        TextClassifier(torch.nn.Linear(2, 2))
