//! The program: all that Sluice has, and the plugin of this crate.

use sluice_all as _;

use {{crate}} as _;

fn main() -> std::process::ExitCode {
    sluice::main()
}
