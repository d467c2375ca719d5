"""Functions of sums by addition theorems, sin(a + b) = sin(a) cos(b) + cos(a) sin(b), inside the terms of a form."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..normal_form.form import Atom, Form, Function, Term, add, is_finite, refresh
from ..normal_form.form_products import enclosed
from ..normal_form.index_values import expanded_indices

OfSum = Callable[[str, tuple[Form, ...]], "Form | None"]
Product = Callable[[Form, Form], Form]


def expanded_sums(form: Form, names: Collection[str], of_sum: OfSum, product: Product) -> Form:
    """The form with functions of sums of indices expanded: `cos(#[i + a] t)`, from a substitution into `cos(#[i] t)`.

    `names` are the functions with an addition theorem, `of_sum` its right side for an application, None where it does
    not apply.
    """
    return add(*(_expanded(term, names, of_sum, product) for term in form))


def _expanded(term: Term, names: Collection[str], of_sum: OfSum, product: Product) -> Form:
    found: dict[Atom, Form] = {}
    for factor, power in term.factors if names and is_finite((term,)) else ():
        name = factor.name.removeprefix("fn ") if isinstance(factor, Function) else ""
        if isinstance(factor, Function) and name in names and power > 0:
            value = of_sum(name, tuple(expanded_indices(refresh(argument)) for argument in factor.arguments))
            if value is not None:
                found[factor] = value
    if not found:
        return (term,)
    # Put in under the term's own sum, since the expansion may mention its bound indices.
    inside: Form = (Term(term.coefficient, factors=tuple(entry for entry in term.factors if entry[0] not in found)),)
    for factor, power in term.factors:
        for _ in range(power if factor in found else 0):
            inside = product(inside, found[factor])
    return enclosed(term, inside)
