//! What happens to runs when disks, files and limits fail them.
