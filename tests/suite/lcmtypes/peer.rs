//! The Python and the lcm-gen of LCM's package.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{report_skip, root};

/// LCM's own tools for types.
pub(super) struct Peer {
    python: PathBuf,
    pub(super) lcm_gen: PathBuf,
}

/// Finds the lcm-gen program, beside which the package has a wrapper script.
const WHERE: &str = r#"
import lcm, pathlib
print(pathlib.Path(lcm.__file__).parent.parent / "bin" / "lcm-gen")
"#;

impl Peer {
    /// `None`, with a message, if the tools or these Python modules are missing.
    pub(super) fn with(modules: &str) -> Option<Self> {
        let given = std::env::var_os("SLUICE_PEERS").map(PathBuf::from);
        let python = given.unwrap_or_else(|| root().join(".cache/peers-venv")).join("bin/python3");
        let asked =
            Command::new(&python).args(["-c", &format!("import {modules}\n{WHERE}")]).output();
        let found = asked.ok().filter(|asked| asked.status.success());
        let lcm_gen = found.and_then(|asked| String::from_utf8(asked.stdout).ok());
        let lcm_gen = lcm_gen.map(|path| PathBuf::from(path.trim())).filter(|path| path.exists());
        let Some(lcm_gen) = lcm_gen else {
            report_skip(&format!(
                "there is no Python with {modules} and lcm-gen; .ci/run installs it"
            ));
            return None;
        };
        Some(Self { python, lcm_gen })
    }

    /// The output of a script in this folder, run in a test folder with lcm-gen and these
    /// arguments.
    #[track_caller]
    pub(super) fn script(&self, script: &str, folder: &Path, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.python);
        command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder);
        command.arg(here().join(script)).arg(&self.lcm_gen).args(arguments);
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script} {arguments:?}: {}\n{stderr}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The folder of these tests.
pub(super) fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("suite/lcmtypes")
}
