"""Memory as a limit of the search: what each choice holds on a device, and the cheapest plans that fit."""
