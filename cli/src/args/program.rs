//! Arguments of the verbs about the program itself: `plugins`, `completions` and `man`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct PluginsArgs {
    /// The name of a plugin. Lists all by default.
    pub(crate) name: Option<String>,

    /// Print a JSON array with options and schemas.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
To install the script:
  bash: add `source <(sluice completions bash)` to ~/.bashrc
  zsh:  sluice completions zsh > DIR/_sluice, where DIR is in $fpath before `compinit` runs
  fish: sluice completions fish > ~/.config/fish/completions/sluice.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page for the program and one per verb into this folder, instead of printing the
    /// program's page.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
