"""Keys of objects, and the numbered JSON notes below `control/`: how they are named, read and put."""
