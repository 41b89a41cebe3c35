"""Analysis of a discovered rule: its targets, and the inputs they depend on."""
