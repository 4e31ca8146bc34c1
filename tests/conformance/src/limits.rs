//! Limits the memory of this process while a case runs. Does nothing on systems without such
//! limits.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the allocator may take in addition to what is requested.
const SLACK: u64 = 32 << 20;

/// A limit that is lifted on drop.
pub(crate) struct MemoryLimit {
    before: Rlimit,
}

impl MemoryLimit {
    /// Allows this many bytes in addition to what is in use. Exceeding the limit aborts the
    /// process.
    pub(crate) fn set(bytes: u64) -> Self {
        let before = getrlimit(Resource::As);
        if let Some(used) = used() {
            limit(Rlimit { current: Some(used + bytes + SLACK), maximum: before.maximum });
        }
        Self { before }
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        limit(self.before);
    }
}

fn limit(limit: Rlimit) {
    // If this fails, the case runs without a limit; crashes are still detected.
    setrlimit(Resource::As, limit).ok();
}

/// The address space in use.
fn used() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
