"""From a declaration and the shapes of a call to an instance: equations at concrete sizes."""
