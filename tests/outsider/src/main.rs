use outsider as _; // its own plugin
use sluice_lcm as _; // a family of the repository

fn main() -> std::process::ExitCode {
    sluice::main()
}
