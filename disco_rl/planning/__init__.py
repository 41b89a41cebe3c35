"""What runs need of memory and time, before their programs are compiled."""
