"""Operators of torch one by one, in small modules: loss and gradients of the imported model equal those of torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unity_dsl.importer.model_import import ImportedModel, imported_model
from unity_dsl.syntax.diagnostic import InputError


class Applied(nn.Module):
    """A linear map, then a layer or a function, then the mean of squares."""

    def __init__(self, apply: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.map = nn.Linear(shape[-1], shape[-1])
        if isinstance(apply, nn.Module):
            self.layer = apply
        else:
            self.function = apply

    def forward(self, x: Tensor) -> Tensor:
        apply = self.layer if hasattr(self, "layer") else self.function
        return apply(self.map(x)).square().mean()


ROWS, IMAGES, WAVES = (4, 6, 8), (3, 4, 8, 8), (3, 4, 12)
EDGES = torch.tensor([0, 2, 0, 1])
PATCHES = nn.Conv3d(1, 5, (2, 4, 2), (2, 4, 2))
NORMS: Mapping[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "rms_norm": (nn.RMSNorm(8), ROWS),
    "rms_norm without a gain": (nn.RMSNorm(8, elementwise_affine=False, eps=1e-5), ROWS),
    "layer_norm of two dimensions": (nn.LayerNorm((6, 8)), ROWS),
    "layer_norm without a bias": (nn.LayerNorm(8, bias=False), ROWS),
    "group_norm": (nn.GroupNorm(2, 4), IMAGES),
    "group_norm without a gain": (nn.GroupNorm(2, 4, affine=False), IMAGES),
    "instance_norm": (nn.InstanceNorm2d(4, affine=True), IMAGES),
    "batch_norm of a sequence": (nn.BatchNorm1d(4), WAVES),
    "variance": (lambda x: x.var(-1), ROWS),
    "deviation": (lambda x: x.std((1, 2), correction=0, keepdim=True), ROWS),
    "normalize": (lambda x: F.normalize(x, dim=-1) * torch.arange(8.0), ROWS),
    "norm of order 1": (lambda x: torch.linalg.vector_norm(x, 1, -1), ROWS),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), ROWS),
    "greatest": (lambda x: x.max(-1).values, ROWS),
    "least": (lambda x: x.min(1, keepdim=True).values, ROWS),
    "cosine_similarity": (lambda x: F.cosine_similarity(x[:, :3], x[:, 3:], dim=-1), ROWS),
}
POINTWISE: Mapping[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    **{type(layer).__name__: (layer, ROWS) for layer in (nn.SELU(), nn.Softsign(), nn.Mish(), nn.ELU(0.5), nn.ReLU6())},
    **{type(layer).__name__: (layer, ROWS) for layer in (nn.Hardswish(), nn.Hardsigmoid(), nn.LogSigmoid(), nn.GLU())},
    **{type(layer).__name__: (layer, ROWS) for layer in (nn.LeakyReLU(0.3), nn.Hardtanh(), nn.Softplus(), nn.PReLU())},
    "prelu of channels": (nn.PReLU(4), IMAGES),
    "clamp from below": (lambda x: x.clamp(min=0.1), ROWS),
    "addcmul": (lambda x: torch.addcmul(x, x, x.sigmoid(), value=0.5), ROWS),
    "lerp": (lambda x: torch.lerp(x, x.sigmoid(), 0.25), ROWS),
    "division": (lambda x: 2 / (1 + x.square()), ROWS),
    "powers": (lambda x: (x.abs() + 1) ** 1.5, ROWS),
    "waves": (lambda x: x.sin() + 2 * x.cos() + torch.erf(x), ROWS),
    "masks": (lambda x: torch.where(x > 0.1, x, 0.3 * x) + x * ((x < -0.2) | (x >= 0.5)), ROWS),
    "masks of two": (lambda x: torch.where((x <= x.flip(1)) & ~(x == 0), x, x.square()), ROWS),
    "signs": (lambda x: x.sign() * x.square() + x.amin(-1, keepdim=True), ROWS),
    "logarithms": (lambda x: torch.log1p(x.abs()) + torch.expm1(x) + torch.exp2(x) + torch.log2(x.abs() + 2), ROWS),
    "hyperbolic": (lambda x: torch.sinh(x) * torch.cosh(x), ROWS),
    "bounds": (lambda x: torch.maximum(x, torch.tensor(0.1)) + torch.minimum(x, torch.tensor([0.2] * 8)), ROWS),
    "shrinking": (lambda x: F.softshrink(x, 0.1) + F.hardshrink(x, 0.2) + F.tanhshrink(x) + F.celu(x, 1.3), ROWS),
    "finite ones": (lambda x: torch.where(torch.isfinite(x), x, 0.0) + torch.logaddexp(x, 2 * x), ROWS),
    "a table of numbers": (lambda x: x * torch.tensor([0.1, 0.2, 0.3, 0.7] * 2), ROWS),
    "a mask of another type": (lambda x: x * (1.0 - torch.tensor([True, False] * 4).type_as(x)), ROWS),
    "the greatest in its row": (lambda x: x * (x.argmax(-1, keepdim=True) == torch.arange(8)), ROWS),
    "rows of what is greatest": (
        lambda x: F.embedding(x.argmax(-1).int(), torch.arange(24.0).view(8, 3)) * x[..., :1],
        ROWS,
    ),
    "the least in a column": (lambda x: x[:, :1] * x.argmin(1, keepdim=True).float(), ROWS),
    "the least of a column": (lambda x: x.topk(2, 1, largest=False)[0] * torch.arange(1.0, 9.0), ROWS),
    "a chosen choice": (lambda x: sum((x.topk(2)[1] == k).sum(-1, keepdim=True) * x * (k + 1) for k in range(8)), ROWS),
}
PLACES: Mapping[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "every second": (lambda x: x[:, ::2] - x[:, 1::2], ROWS),
    "stack": (lambda x: torch.stack([x, x.sigmoid()], 1), ROWS),
    "roll and flip": (lambda x: x.roll((1, 2), (1, 2)).flip(1) * torch.arange(6.0)[:, None], ROWS),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1)) + 1, ROWS),
    "crop": (lambda x: F.pad(x, (-1, -2)), ROWS),
    "tril": (lambda x: x.matmul(x.transpose(1, 2)).tril(-1), ROWS),
    "cumsum": (lambda x: x.cumsum(1), ROWS),
    "repeat": (lambda x: x.repeat(1, 2, 1) * torch.arange(12.0)[:, None], ROWS),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1) * torch.arange(12.0)[:, None], ROWS),
    "einsum": (lambda x: torch.einsum("bik,bjk->bij", x, x.tanh()), ROWS),
    "einsum of one batch": (lambda x: torch.einsum("bsd,tsd->bts", x, x.tanh()), ROWS),
    "rows by a table": (lambda x: x[:, torch.tensor([2, 0, 2])], ROWS),
    "pixel_shuffle": (nn.PixelShuffle(2), IMAGES),
    "nearest": (nn.Upsample(scale_factor=2), IMAGES),
    "bilinear": (nn.Upsample(size=(5, 9), mode="bilinear"), IMAGES),
    "bicubic": (nn.Upsample(scale_factor=2, mode="bicubic", align_corners=True), IMAGES),
    "average": (nn.AvgPool2d(3, 2, 1), IMAGES),
    "average without padding": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGES),
    "average beyond the end": (nn.AvgPool2d(3, 2, ceil_mode=True), IMAGES),
    "the greatest beyond the end": (nn.MaxPool2d(3, 2, ceil_mode=True), IMAGES),
    "the greatest of windows of which some start behind the end": (nn.MaxPool2d(2, 3, 1, ceil_mode=True), IMAGES),
    "rows added": (lambda x: torch.zeros(4, 5, 8).index_add(1, torch.tensor([0, 1, 2, 3, 4, 0]), x), ROWS),
    "rows summed": (lambda x: torch.zeros(3, 8).scatter_add(0, EDGES[:, None].expand(-1, 8), x[:, 0]), ROWS),
    "spectral norm": (nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), ROWS),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), ROWS),
    "adaptive": (nn.AdaptiveAvgPool2d((3, 5)), IMAGES),
    "the greatest of windows": (nn.AdaptiveMaxPool2d((2, 4)), IMAGES),
    "blocks of a video": (lambda x: PATCHES(x[:, None]).flatten(2), IMAGES),
    "windows of a sequence": (nn.MaxPool1d(3), WAVES),
    "averages of a sequence": (nn.AvgPool1d(2), WAVES),
    "conv1d": (nn.Conv1d(4, 6, 3, padding="same", groups=2), WAVES),
    "conv_transpose1d": (nn.ConvTranspose1d(4, 6, 4, 2, 1), WAVES),
    "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), IMAGES),
}


@pytest.mark.parametrize("name", [*NORMS, *POINTWISE, *PLACES])
def test_a_layer_is_imported(name: str) -> None:
    """The import compares loss and gradients in float64, and would refuse a difference."""
    torch.manual_seed(0)
    apply, shape = {**NORMS, **POINTWISE, **PLACES}[name]
    found = imported_model(Applied(apply, shape), (torch.randn(shape),), {}, "m").verified
    assert found is not None and found.ok


class Loss(nn.Module):
    """A classifier with a loss."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.map, self.loss = nn.Linear(6, 5), loss

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return self.loss(self.map(x), labels)


LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "label smoothing": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "a sum": lambda x, y: F.cross_entropy(x, y, reduction="sum"),
    "logarithms": lambda x, y: F.nll_loss(x.log_softmax(-1), y),
    "of each": lambda x, y: F.cross_entropy(x, y, reduction="none").square().mean(),
    "weights of classes": lambda x, y: F.cross_entropy(x, y, weight=torch.arange(1.0, 6.0)),
    "a sum but for a class": lambda x, y: F.cross_entropy(x, y, reduction="sum", ignore_index=2),
    "likelihoods but for a class": lambda x, y: F.nll_loss(x.log_softmax(-1), y, ignore_index=2),
    "divergence": lambda x, y: F.kl_div(x.log_softmax(-1), x.flip(0).softmax(-1).detach(), reduction="batchmean"),
    "margins": lambda x, y: F.triplet_margin_loss(x, x.roll(1, 0), x.roll(2, 0)) + F.multi_margin_loss(x, y),
    "distances": lambda x, y: F.smooth_l1_loss(x, F.one_hot(y, 5).float()) + F.huber_loss(x, F.one_hot(y, 5).float()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_imported(name: str) -> None:
    torch.manual_seed(0)
    batch = {"x": torch.randn(8, 6), "labels": torch.randint(5, (8,))}
    found = imported_model(Loss(LOSSES[name]), (), batch, "m").verified
    assert found is not None and found.ok


class Given(nn.Module):
    """Returns the result of a function of the module and its inputs."""

    def __init__(self, apply: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.apply_to = apply
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *given: Any, **named: Any) -> Tensor:
        return self.apply_to(self, *given, **named)


def imported(module: nn.Module, *given: Any, **named: Any) -> ImportedModel:
    torch.manual_seed(0)
    found = imported_model(module, given, named, "m")
    assert found.verified is not None and found.verified.ok
    return found


def test_modules_of_tutorials() -> None:
    """A target mask that Transformer may inspect, distributions that may validate, channel dropout, and weight norm."""
    transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    imported(
        Given(lambda own, x, y: own.layers(x, y, tgt_mask=mask).square().mean(), layers=transformer),
        torch.randn(2, 4, 16),
        torch.randn(2, 5, 16),
    )
    imported(
        Given(lambda own, x: -torch.distributions.Normal(own.a(x), 1.0).log_prob(x).mean(), a=nn.Linear(4, 4)),
        torch.randn(3, 4),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        normed = nn.utils.weight_norm(nn.Conv1d(4, 4, 3))
    imported(Given(lambda own, x: F.dropout1d(own.a(x), 0.3).square().mean(), a=normed), torch.randn(WAVES))


def test_weights_that_no_gradient_reaches_are_buffers() -> None:
    """An example is a generator in the loss of its discriminator."""
    module = Given(
        lambda own, x: own.b(torch.cat([x, own.a(x).detach()])).square().mean(), a=nn.Linear(4, 4), b=nn.Linear(4, 1)
    )
    found = imported(module, torch.randn(3, 4))
    assert "buffer a_weight:" in found.files["m.udl"] and "weight b_weight:" in found.files["m.udl"]
    assert any(note.startswith("buffers, as no gradient of the loss reaches") for note in found.notes)


def test_inputs_may_be_nested() -> None:
    module = Given(lambda own, x, state: (own.a(x) + state[0] * state[1]["c"]).square().mean(), a=nn.Linear(4, 4))
    found = imported(module, torch.randn(3, 4), (torch.randn(3, 4), {"c": torch.randn(3, 4)}))
    assert found.files["m.udl"].count("input ") == 3


def test_parts_of_operators_are_decomposed_as_far_as_it_takes() -> None:
    """Class weights come last, after parts that take several rounds."""
    reflected = nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")

    def classified(own: Any, x: Tensor, labels: Tensor) -> Tensor:
        logits = own.b(F.elu(own.a(x)).mean((2, 3)))
        return F.cross_entropy(logits, labels, weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))

    imported(Given(classified, a=reflected, b=nn.Linear(3, 4)), torch.randn(2, 3, 8, 8), torch.tensor([0, 3]))


def test_a_module_that_does_not_run_is_told_with_its_line() -> None:
    module = Given(lambda own, x: own.a(x)["loss"], a=nn.Linear(4, 4))
    with pytest.raises(InputError, match=r"E602.*does not run on its example inputs.*test_operators.py"):
        imported_model(module, (torch.randn(3, 4),), {}, "m")


@pytest.mark.parametrize("given", [True, False])
def test_a_mask_that_selects_is_told(given: bool) -> None:
    """The mask is an input, or is computed."""

    def selected(own: Any, x: Tensor, kept: Tensor) -> Tensor:
        made = own.a(x)
        return made[kept if given else made[:, 0] > 0].square().mean()

    module = Given(selected, a=nn.Linear(4, 4))
    with pytest.raises(InputError, match="E605") as told:
        imported_model(module, (torch.randn(3, 4), torch.tensor([True, False, True])), {}, "m")
    assert "multiply by the mask" in told.value.diagnostic.message and "sym_size" not in told.value.diagnostic.message


def test_dropout_of_channels_and_rows() -> None:
    """Dropout of whole channels becomes `row_dropout`."""

    def dropped(x: Tensor) -> Tensor:
        kept = torch.empty(x.shape[0], 1, 1, 1).bernoulli_(0.8).div_(0.8)
        return F.dropout2d(x, 0.3) + x * kept

    text = imported_model(Applied(dropped, IMAGES), (torch.randn(IMAGES),), {}, "m", verified=False).files["m.udl"]
    assert text.count("row_dropout(") == 2 and "p=0.3)" in text and "p=0.2)" in text


def test_rows_may_be_divided_by_their_probability_later() -> None:
    """The draw may use a tensor of one probability, as in stochastic depth; several probabilities are refused."""

    def dropped(own: Any, x: Tensor) -> Tensor:
        kept = torch.bernoulli(torch.full((x.shape[0], 1), 0.8))
        return (x + own.a(x) * kept / 0.8).square().mean()

    found = imported_model(Given(dropped, a=nn.Linear(4, 4)), (torch.randn(3, 4),), {}, "m")
    assert found.verified is not None and found.verified.gradient < 1e-10
    assert "row_dropout(" in found.files["m.udl"] and "p=0.2)" in found.files["m.udl"]

    def several(own: Any, x: Tensor) -> Tensor:
        return (own.a(x) * torch.bernoulli(torch.tensor([[0.2], [0.5], [0.8]]))).square().mean()

    with pytest.raises(InputError, match="E605"):
        imported_model(Given(several, a=nn.Linear(4, 4)), (torch.randn(3, 4),), {}, "m")


class Attention(nn.Module):
    """Attention to the keys that a Boolean mask keeps."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.map, self.shape = nn.Linear(8, 24), shape

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = self.map(x).view(*x.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, seen.view(self.shape)).square().mean()


@pytest.mark.parametrize("shape", [(3, 1, 1, 6), (1, 1, 6, 6), (3, 1, 6, 6)], ids=str)
def test_masks_that_broadcast(shape: tuple[int, ...]) -> None:
    """The mask is of keys alone, the same for all examples, or of each pair; every query keeps its first key."""
    seen = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.5
    seen[..., 0] = True
    found = imported_model(Attention(*shape), (torch.randn(3, 6, 8), seen), {}, "m").verified
    assert found is not None and found.ok


def test_all_that_is_lacking_is_told_at_once() -> None:
    def lacking(x: Tensor) -> Tensor:
        return torch.special.i0(x) + torch.cdist(x, x).mean() + torch.erfinv(x.tanh())

    with pytest.raises(InputError, match="E605") as told:
        imported_model(Applied(lacking, ROWS), (torch.randn(ROWS),), {}, "m")
    message = told.value.diagnostic.message
    assert message.startswith("3 operators have no counterpart: ")
    assert all(name in message for name in ("special_i0", "erfinv", "cdist"))
