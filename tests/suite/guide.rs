//! The guide for plugins of one's own: its code is compiled, its commands are run.
