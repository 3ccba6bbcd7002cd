"""Text: words cannot be moved a little, their embeddings can. Classifiers of transformers, searched before their first layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.method.adapters import Wrapper

PADDING = -1  # stands where no token is
AGREEMENT = 1e-3  # of logits through embeddings with logits through tokens; other positions or padding change much more


class TextClassifier(Wrapper):
    """A sequence classifier of transformers as a model of embedded texts, (N, L, D + 1) to logits (N, C).

    The last channel of a text holds the ids of its tokens, :data:`PADDING` where there is none. So a row carries its own mask,
    wherever it is sliced or repeated; ``frozen`` keeps that channel. Padding and the tokens in ``keep`` have no part in the
    search: moving them changes nothing.

    Args:
        model: such as BertForSequenceClassification; its padding may stand on the right only.
        keep: ids of tokens that must stay, such as ``tokenizer.all_special_ids``.

    >>> text = TextClassifier(model, keep=tokenizer.all_special_ids)                      # doctest: +SKIP
    >>> x = text.embed(**tokenizer(sentences, padding=True, return_tensors="pt"))         # doctest: +SKIP
    >>> drq.DRQ(text, bounds=None, frozen=text.frozen).decide(x).label                    # doctest: +SKIP
    """

    keep: Tensor

    def __init__(self, model: nn.Module, keep: Sequence[int] = ()) -> None:
        fits = isinstance(model, nn.Module) and hasattr(model, "get_input_embeddings")
        remedy = "AutoModelForSequenceClassification loads one"
        require(fits, "model", "be a classifier of transformers, with an embedding of its tokens", type(model).__name__, remedy)
        super().__init__(model)
        self.register_buffer("keep", torch.tensor([*keep], dtype=torch.long), persistent=False)

    @property
    def frozen(self) -> Tensor:
        """The mask for DRQ: the ids of the tokens must not change."""
        width = self._embedded(torch.zeros(1, dtype=torch.long, device=self.keep.device)).shape[-1]
        return torch.arange(width + 1, device=self.keep.device) == width

    @torch.no_grad()
    def embed(self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None) -> Tensor:
        """The texts that a tokenizer has turned into ids, (N, L) each, as (N, L, D + 1), or an error where they cannot be."""
        _check_ids(input_ids, attention_mask, token_type_ids)
        ready = not getattr(self.model, "training", False)
        require(ready, "model", "be in evaluation mode", "training mode", "call model.eval()")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        code = torch.where(mask.bool(), input_ids, PADDING)
        embedded = self._embedded(input_ids)
        wide = embedded if embedded.dtype == torch.float64 else embedded.float()
        x = torch.cat([wide, code[..., None].to(wide)], -1)
        if len(x):
            direct = self._answer(input_ids=input_ids, attention_mask=mask)
            apart = float((self(x) - direct).abs().max())
            remedy = "embed texts one by one, or pad on the right"
            near = apart <= AGREEMENT * max(1.0, float(direct.abs().max()))
            require(near, "model", "answer through embeddings as through tokens", f"logits {apart:.2g} apart", remedy)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, C)."""
        code = x[..., -1].round().long()
        attended = code != PADDING
        clean = self._embedded(code.clamp_min(0))
        moved = attended & ~torch.isin(code, self.keep)
        embedded = torch.where(moved[..., None], x[..., :-1].to(clean), clean)
        return self._answer(inputs_embeds=embedded, attention_mask=attended.long()).to(x.dtype)

    def _embedded(self, ids: Tensor) -> Tensor:
        model: Any = self.model
        embedded: Tensor = model.get_input_embeddings()(ids)
        return embedded

    def _answer(self, **inputs: Tensor) -> Tensor:
        model: Any = self.model
        logits: Tensor = model(**inputs).logits
        return logits


def _check_ids(input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None) -> None:
    """What a tokenizer returns for single texts."""
    fits = isinstance(input_ids, Tensor) and input_ids.dim() == 2 and not input_ids.is_floating_point()
    got = f"{input_ids.dtype} of shape {tuple(input_ids.shape)}" if isinstance(input_ids, Tensor) else type(input_ids).__name__
    remedy = 'use tokenizer(texts, padding=True, return_tensors="pt")'
    require(fits, "input_ids", "be whole numbers (N, L)", got, remedy)
    same = attention_mask is None or attention_mask.shape == input_ids.shape
    require(same, "attention_mask", "have the shape of input_ids", getattr(attention_mask, "shape", None), remedy)
    single = token_type_ids is None or not token_type_ids.any()
    require(single, "token_type_ids", "be 0, as in single texts", "pairs of texts", "join both into one text")
