"""From candidate rules to the library: derived or proved, lifted to any rank, minimised, named, written as text."""
