"""Role programs and the simulator that executes them barrier by barrier."""
