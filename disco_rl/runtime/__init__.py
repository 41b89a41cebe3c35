"""What touches devices, disk, signals and the terminal."""
