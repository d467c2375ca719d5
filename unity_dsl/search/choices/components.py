"""Connected components of a graph whose edges arrive one by one (disjoint sets).

Tarjan, "Efficiency of a Good But Not Linear Set Union Algorithm", Journal of the ACM 22, 1975.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Components:
    """Vertices by name. A vertex without edges is a component of its own."""

    _above: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        """The vertex that represents the component of `name`."""
        path = []
        while (above := self._above.get(name, name)) != name:
            path.append(name)
            name = above
        self._above.update(dict.fromkeys(path, name))
        return name

    def join(self, first: str, second: str) -> bool:
        """Adds an edge. Returns whether it joins two components: these edges are a spanning forest (Kruskal 1956)."""
        one, other = self.of(first), self.of(second)
        self._above[other] = one
        return one != other
