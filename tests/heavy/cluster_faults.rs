//! What becomes of runs on a cluster whose parts die, lie or are unreachable.
