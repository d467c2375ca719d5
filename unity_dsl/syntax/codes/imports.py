"""E60x: modules of other frameworks, as title and text."""

from __future__ import annotations

from .code import Code

IMPORTS: dict[str, Code] = {
    "E601": Code(
        "a factory that cannot be called",
        "`unityc import package.module:function` imports the module from the current folder or from what is installed, "
        "and calls the function without arguments. The message has the first line of what Python raised.",
    ),
    "E602": Code(
        "a factory that returns something else",
        "A factory returns a torch.nn.Module and its example inputs: a dict of keyword arguments, or a tuple of "
        "positional ones. The sizes of the examples are those of the model; the first dimension of the first one is "
        "its batch. Inputs of a Keras model are `x`, `y` and, if there are any, weights of examples, `sample_weight`.",
    ),
    "E603": Code(
        "a module that cannot be captured",
        "`torch.export` runs the module's code once and records its operators. It stops where Python decides by the "
        "values of a tensor: an `if` or a loop over what data contain. Such decisions can be made of tensors, by "
        "`torch.where` or a mask. A module whose code decides so can be replaced by a block: `unity_dsl.replaces`.",
    ),
    "E604": Code(
        "a module without a loss",
        "What is imported is a training step, so the module returns a scalar, alone or as the first of several values, "
        "and takes the labels among its inputs. A Keras model has the loss that it was compiled with.",
    ),
    "E605": Code(
        "operators or tables without a counterpart",
        "The message names every operator of torch that has none, or not with these arguments, with the module that "
        "calls it and the line. Tables are constant tensors that no operator of the library stands for. The "
        "module can be replaced by a block of the language, by `unity_dsl.replaces`. A .uop file may declare what is "
        "lacking, and the model can be written by hand from there.",
    ),
    "E606": Code(
        "a model that is not equal to its module",
        "Both are run in float64 with the same weights on the example inputs, and their losses and gradients differ. "
        "Dropout is off in both. Other random numbers are not the same in both: leave them out for the import. "
        "Otherwise the importer is wrong, and nothing is written.",
    ),
    "E607": Code(
        "files that are there",
        "The folder has files of these names with other texts, which may have been edited. `--force` writes over them.",
    ),
    "E608": Code(
        "a file that is no ONNX model",
        "The file cannot be read as one, or breaks the rules of the format; the message has the first line of what the "
        "checker of the package onnx says.",
    ),
    "E609": Code(
        "what is not supported of an ONNX model",
        "The message names its opset, if that is too old or too new, and all operators that have no counterpart. "
        "Import the torch module that the file was exported from, if there is one: it has dropout and batch norm too.",
    ),
    "E610": Code(
        "a package that is missing",
        "What is imported needs a package that is not installed; the hint says how to install it.",
    ),
    "E611": Code(
        "a function that gives no block",
        "A function that `unity_dsl.replaces` registers takes a module and returns `unity_dsl.Block`: the text of one "
        "block and the values of its parameters, which are numbers. The message has the first line of what Python "
        "raised.",
    ),
    "E612": Code(
        "a block that does not fit the module it replaces",
        "Operands of the block are found by name: arguments of the module's `forward` that are tensors, and the "
        "module's parameters and buffers, with underscores for dots. The block reads every tensor that the module is "
        "called with, declares and updates none, and returns as many as `forward` does, of the same shapes.",
    ),
    "E613": Code(
        "a backend of Keras that is not torch",
        "Keras runs on the backend that KERAS_BACKEND named when it was first imported. `torch.export` captures what "
        "torch computes, so that backend has to be torch; models are the same on every backend. Without the variable, "
        "`unityc import` sets it before it imports the factory's module.",
    ),
}
