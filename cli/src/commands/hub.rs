//! `hub`: serves the programs of a network without multicast until it is stopped. What it serves is a
//! plugin's business.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;
use sluice_core::name::printable_sentence;
use sluice_core::{PluginFactory, PluginKind};
use sluice_pipeline::run::Stop;

use crate::ending::{Ending, Failure, Outcome};
use crate::inputs;
use crate::log::tell;
use crate::shell::Shell;
use crate::signals::{Listening, SignalMessages};

/// The service that hands messages on.
const HUB: &str = "lcm-hub";

/// What is said to who stops it.
const STOPPING: SignalMessages = ["stopping", "stopping: once more ends it at once"];

#[derive(Debug, Default, Args)]
#[command(after_help = "\
Programs connect to it with the address tcpq://HOST:PORT. It runs until Ctrl-C or kill.

Examples:
  sluice hub
  sluice hub --listen 127.0.0.1:7711
  sluice play drive.lcm --to tcpq://127.0.0.1:7700

Exit codes: 0 it was stopped; 1 it failed: the port is in use, say; 2 wrong use.")]
pub(crate) struct HubArgs {
    /// The address and port to listen on; all of this computer's if left out. Port 0 takes one that is
    /// free, and says which.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7700",
        value_parser = NonEmptyStringValueParser::new())]
    pub(crate) listen: String,
}

pub(crate) fn run(args: &HubArgs, shell: &Shell) -> Outcome {
    let plugin = inputs::named(shell, PluginKind::Service, HUB)?;
    let PluginFactory::Service(make) = plugin.make else {
        return Err(Failure::Failed(format!("`{HUB}` is no service")));
    };
    let service = make(json!({ "listen": args.listen }));
    let service = service.map_err(|error| Failure::WrongUse(error.to_string()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let quiet = shell.quiet;
    let raised = Arc::clone(&stop);
    let _listening = Listening::start(Arc::<Stop>::default(), &STOPPING, move |text| {
        raised.store(true, Ordering::Relaxed);
        if !quiet {
            tell(text);
        }
    });
    let chatty = shell.verbose || io::stderr().is_terminal();
    // What it says first is where it listens: that was asked for.
    let said = AtomicBool::new(false);
    let say = |text: &str| {
        if !said.swap(true, Ordering::Relaxed) || chatty {
            shell.say(&printable_sentence(text));
        }
    };
    service.serve(&stop, &say)?;
    Ok(Ending::Done)
}
