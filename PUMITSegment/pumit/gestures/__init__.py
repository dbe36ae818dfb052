"""What is drawn by hand: scribbles and lassos, and the points that stand for them."""
