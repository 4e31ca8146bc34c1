//! The names in an exchange directory.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Prefix and suffix of the directory's name. The suffix marks it as temporary.
pub(super) const DIR_NAME: (&str, &str) = (".cluster.", ".sluice-tmp");

/// How often to retry removing a directory that late workers still write to.
pub(super) const REMOVE_ATTEMPTS: usize = 100;

/// The heartbeat file.
pub(super) const DRIVER: &str = "driver";

/// The host name, reduced to characters that are valid in any file name.
pub(super) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.trim().chars().map(plain).take(40).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

/// A globally unique name: host, process, time and counter.
pub(super) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{}-{time:x}-{count}", host(), std::process::id())
}

/// A short unique name.
pub(super) fn unique_hash() -> String {
    blake3::hash(unique().as_bytes()).to_hex().chars().take(16).collect()
}
