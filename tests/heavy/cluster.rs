//! Runs on a cluster of real processes give what runs on this machine give.
