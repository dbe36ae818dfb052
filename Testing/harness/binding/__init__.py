"""Qt with the manners of Slicer's own Python binding, and the register of stand-ins."""
