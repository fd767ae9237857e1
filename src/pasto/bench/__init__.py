"""Side-by-side measurements, one file each."""
