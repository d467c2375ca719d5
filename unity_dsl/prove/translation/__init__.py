"""From rules and operators to normal forms: symbolic sizes, assumptions, inlined operators."""
