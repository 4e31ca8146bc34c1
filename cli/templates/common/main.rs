//! The program: all plugins of Sluice, and that of this crate.

use sluice_all as _;

use {{crate}} as _;

fn main() -> std::process::ExitCode {
    sluice::main()
}
