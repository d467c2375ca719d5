"""Keras models as users write them, with example inputs: what the tests import."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import torch
from keras import layers
from torch import Tensor, nn

Example = tuple[Any, Any]
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def classes(count: int, *shape: int) -> Any:
    return np.random.default_rng(1).integers(0, count, shape)


def perceptron(rate: float = 0.2) -> Example:
    """A sequential model whose dropout has a seed, with positional examples."""
    hidden = [layer for _ in range(3) for layer in (layers.Dense(12, "relu"), layers.Dropout(rate, seed=1))]
    model = keras.Sequential([layers.Input((12,)), *hidden, layers.Dense(4)], name="perceptron")
    model.compile(loss=CROSS_ENTROPY(from_logits=True))
    return model, (numbers(6, 12), classes(4, 6))


def images() -> Example:
    """Convolutions with batch norm; the output is probabilities, of which Keras takes the logarithm."""
    x = given = keras.Input((8, 8, 3))
    for filters, momentum in ((4, 0.99), (6, 0.9)):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization(momentum=momentum, scale=filters > 4)(x)
        x = layers.MaxPooling2D()(layers.ReLU()(x))
    x = layers.SeparableConv2D(5, 2)(x)
    model = keras.Model(given, layers.Dense(4, "softmax")(layers.GlobalAveragePooling2D()(x)), name="images")
    model.compile(loss="sparse_categorical_crossentropy")
    return model, {"x": numbers(4, 8, 8, 3), "y": classes(4, 4)}


def transformer() -> Example:
    """Two causal layers of a functional model."""
    x = given = keras.Input((6,), dtype="int32")
    x = layers.Embedding(16, 8, name="tokens")(x)
    for number in range(2):
        h = layers.LayerNormalization(name=f"norm_{number}")(x)
        x = x + layers.MultiHeadAttention(2, 4, name=f"attention_{number}")(h, h, use_causal_mask=True)
        h = layers.Dense(16, "gelu", name=f"wide_{number}")(layers.RMSNormalization(name=f"rms_{number}")(x))
        x = x + layers.Dense(8, name=f"narrow_{number}")(h)
    model = keras.Model(given, layers.Dense(16, name="head")(x))
    model.compile(loss=CROSS_ENTROPY(from_logits=True))
    return model, {"x": classes(16, 4, 6), "y": np.roll(classes(16, 4, 6), -1, 1)}


class Block(layers.Layer):
    """Attention with dropout and a hidden layer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.attention, self.norm = layers.MultiHeadAttention(2, 4, dropout=0.1), layers.LayerNormalization()
        self.hidden = keras.Sequential([layers.Dense(16, "silu"), layers.Dense(8)])

    def build(self, shape: Any) -> None:
        self.attention.build(shape, shape)
        self.norm.build(shape)
        self.hidden.build(shape)

    def call(self, x: Any, seen: Any = None, training: bool = False) -> Any:
        x = x + self.attention(x, x, attention_mask=seen, training=training)
        return x + self.hidden(self.norm(x))


class Reader(keras.Model):
    """A subclassed model with a list of layers and a padding mask."""

    def __init__(self) -> None:
        super().__init__(name="reader")
        self.tokens, self.blocks = layers.Embedding(16, 8), [Block(), Block()]
        self.head = layers.Dense(3, kernel_regularizer="l2")

    def call(self, x: Any, training: bool = False) -> Any:
        seen = keras.ops.not_equal(x, 0)[:, None, :]
        h = self.tokens(x)
        for block in self.blocks:
            h = block(h, seen=seen, training=training)
        return self.head(keras.ops.mean(h, axis=1))


def reader() -> Example:
    model = Reader()
    model.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1))
    x = classes(15, 4, 6) + 1
    x[0, 4:] = 0
    return model, {"x": x, "y": np.eye(3, dtype="float32")[classes(3, 4)]}


def sequence() -> Example:
    x = given = keras.Input((5, 3))
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
    model = keras.Model(given, layers.Dense(2)(layers.GRU(4)(layers.SpatialDropout1D(0.2)(x))))
    model.compile(loss="mse")
    return model, {"x": numbers(4, 5, 3), "y": numbers(4, 2)}


def several() -> Example:
    """Two inputs, two outputs, and sample weights; the first layer is frozen."""
    first, second = keras.Input((4,), name="first"), keras.Input((3,), name="second")
    frozen = layers.Dense(5, name="frozen")
    h = layers.Concatenate()([frozen(first), layers.LeakyReLU()(layers.Dense(5)(second))])
    outputs = {"p": layers.Dense(2, "sigmoid", name="p")(h), "q": layers.Dense(1, name="q")(h)}
    frozen.trainable = False
    model = keras.Model({"first": first, "second": second}, outputs)
    model.compile(loss={"p": "binary_crossentropy", "q": "mae"}, loss_weights={"p": 1.0, "q": 0.3})
    y = {"p": classes(2, 4, 2), "q": numbers(4, 1)}
    return model, {"x": {"first": numbers(4, 4), "second": numbers(4, 3)}, "y": y, "sample_weight": np.arange(4) / 3}


class Mixed(nn.Module):
    """A torch module with a Keras model inside."""

    def __init__(self) -> None:
        super().__init__()
        layer = [layers.Dense(6, "relu", name="inner"), layers.BatchNormalization(name="norm"), layers.Dropout(0.1)]
        self.body = keras.Sequential([layers.Input((5,)), *layer], name="body")
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(self.norm(self.body(x, training=True)))
        return nn.functional.cross_entropy(logits, labels), logits


def mixed() -> Example:
    return Mixed(), {"x": torch.from_numpy(numbers(4, 5)), "labels": torch.from_numpy(classes(3, 4))}


def without_a_loss() -> Example:
    return keras.Sequential([layers.Input((3,)), layers.Dense(2)]), (numbers(4, 3), numbers(4, 2))


def huber() -> Example:
    model = keras.Sequential([layers.Input((3,)), layers.Dense(2)])
    model.compile(loss="huber")
    return model, (numbers(4, 3), numbers(4, 2))


def torch_inside() -> Example:
    model = keras.Sequential([layers.Input((3,)), layers.TorchModuleWrapper(nn.Linear(3, 2))])
    model.compile(loss="mse")
    return model, (numbers(4, 3), numbers(4, 2))


def without_labels() -> Example:
    return perceptron()[0], {"x": numbers(6, 12)}


def other_names() -> Example:
    return perceptron()[0], {"tokens": numbers(6, 12)}
