//! `hub`: relays messages on networks without multicast until stopped. A plugin implements the
//! service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use serde_json::json;
use sluice_io::escape::printable_sentence;
use sluice_model::{DefaultRole, PluginKind};
use sluice_pipeline::run::Stop;

use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::log::log_message;
use crate::plugin_lookup;
use crate::shell::Shell;
use crate::signals::{SignalListener, SignalMessages};

/// The messages on signals.
const STOPPING: SignalMessages = ["stopping", "stopping; another signal ends it at once"];

#[derive(Debug, Default, Args)]
#[command(after_help = "\
Programs connect to tcpq://HOST:PORT. The hub runs until Ctrl-C or kill. It reports which programs
come and go, and how many messages were dropped because a program was too slow; -q does not.

Examples:
  sluice hub
  sluice hub --listen 127.0.0.1:7711
  sluice play drive.lcm --to tcpq://127.0.0.1:7700

Exit codes: 0 stopped, also if a program was too slow; 1 failed, for example because the port is in
use; 2 invalid command line.")]
pub(crate) struct HubArgs {
    /// The address and port to listen on; all addresses of this machine by default. Port 0 picks a
    /// free port and prints it.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7700",
        value_parser = address_and_port)]
    pub(crate) listen: String,
}

/// Validates an address and a port. The service resolves names.
fn address_and_port(text: &str) -> Result<String, String> {
    let (address, port) = text.rsplit_once(':').unwrap_or_default();
    let is_name = !address.is_empty() && !address.contains(':') && port.parse::<u16>().is_ok();
    match is_name || text.parse::<SocketAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("expected an address, `:` and a port from 0 to 65535".to_owned()),
    }
}

pub(crate) fn run(args: &HubArgs, shell: &Shell) -> CommandResult {
    let plugin = plugin_lookup::default_plugin(shell, PluginKind::Service, DefaultRole::Live)?;
    let service = shell.registry.service(plugin.name, json!({ "listen": args.listen }));
    let service = service.map_err(|error| Failure::Usage(error.to_string()))?;
    let stop = Arc::new(AtomicBool::new(false));
    let quiet = shell.quiet;
    let raised = Arc::clone(&stop);
    let _listening = SignalListener::start(Arc::<Stop>::default(), &STOPPING, move |text| {
        raised.store(true, Ordering::Relaxed);
        if !quiet {
            log_message(text);
        }
    });
    service.serve(&stop, &|text| shell.info(&printable_sentence(text)))?;
    Ok(ExitStatus::Done)
}
