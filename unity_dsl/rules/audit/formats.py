"""The formats by name."""

from __future__ import annotations

from .taso_reading import TASO
from .unity_reading import UNITY

FORMATS = {format.name: format for format in (TASO, UNITY)}
