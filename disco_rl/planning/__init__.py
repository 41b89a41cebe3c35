"""What a run takes: memory, arithmetic, time, and settings that suit them."""
