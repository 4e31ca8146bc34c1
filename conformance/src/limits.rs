//! A limit on the memory of this process, while a case is tried. Does nothing where the system has no
//! such limit.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the allocator may take beyond what it is asked for.
const SLACK: u64 = 32 << 20;

/// A limit that is lifted when it is dropped.
pub(crate) struct Limit {
    before: Rlimit,
}

impl Limit {
    /// Lets the process take so many bytes beyond what it has now. Asking for more then ends it.
    pub(crate) fn set(bytes: u64) -> Self {
        let before = getrlimit(Resource::As);
        if let Some(used) = used() {
            limit(Rlimit { current: Some(used + bytes + SLACK), maximum: before.maximum });
        }
        Self { before }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        limit(self.before);
    }
}

fn limit(limit: Rlimit) {
    // A system that refuses leaves the case without a limit; crashes are still seen.
    setrlimit(Resource::As, limit).ok();
}

/// The address space that the process takes.
fn used() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
