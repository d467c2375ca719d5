"""unity-dsl: from one declaration per operator to the fastest correct distributed training program."""

__version__ = "0.1.0"
