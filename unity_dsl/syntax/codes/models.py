"""E2xx: `.udl` models."""

from __future__ import annotations

from .code import Code

MODELS: dict[str, Code] = {
    "E200": Code(
        "an unknown parameter",
        "A setting (`--set name=value`) or a preset names a parameter that the model does not declare in `model "
        "name[…]`. Sizes that follow from others are set through these.",
    ),
    "E201": Code(
        "an unknown preset",
        "Presets are named sets of parameter values inside the model: `preset small: d = 32, h = 64`.",
    ),
    "E202": Code(
        "a parameter without a number",
        "Every parameter needs a number: a setting wins over the preset, the preset over the default. A block's "
        "parameter without default is given at the call: `ffn[hidden=64](x)`.",
    ),
    "E203": Code(
        "an unknown name in a size",
        "Sizes and attributes are computed from parameters: those of the model that stand before, and in a block its "
        "own. A tensor has no number at compile time.",
    ),
    "E204": Code("arithmetic without a result", "A division by zero, or a number that 64 bits do not hold."),
    "E205": Code(
        "a size that is not a positive whole number",
        "Sizes, counts and ranges of integers are whole and at least 1. `/` of whole numbers is whole only where it "
        "is exact, so a size that must divide is checked by writing it; `//` rounds down.",
    ),
    "E206": Code(
        "a name that is taken",
        "Tensors, parameters, repeats, blocks and outputs each need a name of their own where they are visible. "
        "Assigning to a tensor's name again is allowed, declaring it again is not. A stored tensor's full name has "
        "the names of the blocks and repeats around it in front: two calls of one block need two names to be assigned "
        "to.",
    ),
    "E207": Code(
        "an unknown tensor",
        "The name is that of no input, weight, buffer, assigned tensor or parameter that can be seen here. A block "
        "sees its own inputs and weights and the parameters. What is made in the body of a repeat is not visible "
        "after it, save for names that existed before the repeat: these are carried through.",
    ),
    "E208": Code(
        "a tensor used before it is made",
        "Statements run in the order of the text. Where two tensors are each computed from the other, the cycle is "
        "shown. In a repeat, assign the tensor before the repeat: the body then reads what the last iteration left.",
    ),
    "E209": Code(
        "a block that calls itself",
        "Blocks are written out where they are called, so a block cannot contain itself, directly or through others. "
        "The cycle is shown. `repeat` repeats a fixed number of times.",
    ),
    "E210": Code(
        "an unknown operator",
        "The name is that of no operator in the library (the shipped `.uop` files and those of `--ops DIR`), and of "
        "no block in the file. In rules, parallel ops are called with their degrees, `partition[p; dim=0](x)`, and "
        "operators without.",
    ),
    "E211": Code(
        "a call that does not fit what is called",
        "A block is called with all of its inputs and only with parameters that it declares, `ffn[hidden=64](x)`. "
        "`split` takes one tensor, `dim` and `parts`.",
    ),
    "E212": Code(
        "a wrong number of results",
        "An assignment has as many names as its right side returns tensors, `n, h = lstm_cell(z, c)`; where one tensor "
        "is needed, an operator of several results is assigned first.",
    ),
    "E213": Code(
        "a pattern of another rank",
        "The left side of a view, `x[b, s, (h k)] -> …`, names every dimension of the tensor.",
    ),
    "E214": Code(
        "a pattern or split that does not divide",
        "The factors of a dimension multiply to its size. One factor may be left without a size, it is what the "
        "others leave: `(h=heads k)`. Bare names in patterns are new names, not parameters: give sizes as `h=heads`.",
    ),
    "E215": Code(
        "a pattern whose sides do not match",
        "Every axis of the result is an axis of the operand, each stands once, and a view keeps all of them; only "
        "dimensions of size 1 (written `1`) come and go. A pattern at the call of a reduction drops the reduced axes: "
        "`reduce_mean(x[b, d] -> [b])`.",
    ),
    "E216": Code(
        "a carried tensor that changes",
        "A name that exists before a repeat and is assigned in its body is carried from iteration to iteration, so an "
        "iteration must leave it with the shape and type that it found.",
    ),
    "E217": Code(
        "float types that differ",
        "The float operands of an operator have one type. The diagnostic shows where both come from. A buffer that is "
        "stored in fewer bytes than the model's other floats is cast where it is read.",
    ),
    "E218": Code(
        "a stored tensor that is not complete",
        "Weights and buffers start from an initialiser, `weight w: f32[d, d] ~ normal(0.02)`. Weights are floats: "
        "integers have no gradient, so they are inputs or buffers.",
    ),
    "E219": Code(
        "an initialiser that does not fit its tensor",
        "A negative standard deviation, an empty range, a fan computed from fewer than two dimensions, or a value "
        "that the tensor's integers do not reach.",
    ),
    "E220": Code(
        "a model that returns nothing",
        "A model states what training minimises, `loss cross_entropy(logits, target)`, or what it is run for, "
        "`output logits`, or both. One without a loss is for inference: it has no gradients and no train.py.",
    ),
    "E221": Code("a second loss", "One number is minimised. Several terms are added: `loss a + 0.4 * b`."),
    "E222": Code("a loss that cannot be minimised", "It is one float of shape [] that depends on a weight."),
    "E223": Code(
        "a number where a tensor must stand",
        "Only numbers and parameters are combined here, so there is nothing to compute at run time.",
    ),
    "E224": Code(
        "a stored tensor that nothing needs",
        "An input, weight or buffer that neither the loss nor an output is computed from, or a weight that only "
        "outputs read, which training would never change. It is mostly a name that was misspelt or a line that was "
        "forgotten.",
    ),
    "E225": Code("a tensor too large", "The number of elements does not fit what a 64-bit program can address."),
    "E226": Code(
        "a model too large",
        "Blocks are written out where they are called. Blocks and repeats may be nested 32 deep, calls in expressions "
        "192 deep, and all blocks together may come to 20,000 operators, where the body of a repeat counts once. A "
        "body is executed at most 10,000 times by the repeats around it, and `split` makes at most 1,000 parts.",
    ),
    "E230": Code(
        "an update of what is no buffer here",
        "`update m = …` gives a buffer its value for the next training step. Weights are changed by the optimizer, "
        "inputs by the data, and other names are assigned: `x = …`. A buffer from outside a repeat would be updated by "
        "every iteration: declare it inside, once per iteration, or carry a tensor through and update the buffer after "
        "the repeat.",
    ),
    "E231": Code(
        "a buffer updated twice",
        "In one step a buffer is updated at most once, and everything that reads it in that step sees the value from "
        "before. Compute the value of both updates first, and update the buffer once.",
    ),
    "E232": Code(
        "an update that does not fit its buffer",
        "The new value of a buffer has the shape and the type that the buffer is declared with. One that is stored in "
        "fewer bytes than the model's floats is not updated.",
    ),
    "E240": Code(
        "a scan that does not fit its tensors",
        "`scan x_t in x along 1` reads the slices of a dimension that `x` has, negative numbers counting from the end. "
        "Several tensors have as many positions there. `collect h as y along 0` stacks along a dimension of `y`, that "
        "of the first slices if none is given.",
    ),
    "E241": Code(
        "a cond that cannot be decided",
        "`cond gate as skip` executes its body where `gate`, an `int<2>` of one element, is 1: one decision of all "
        "devices for the whole batch. `expect 0.5` says how often, which is a number above 0 and at most 1. To choose "
        "per sample, compute both and combine them, `x + gate * f`.",
    ),
    "E242": Code(
        "a weight that would differ between the steps of a scan",
        "What the body of a scan declares is stored once and is the same in each iteration. A repeat inside it would "
        "have weights of its own per iteration.",
    ),
}
