"""State of a launch in memory: records of warps and CTAs, lane groups, global memory."""
