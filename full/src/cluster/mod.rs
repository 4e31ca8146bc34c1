//! `cluster`: the processes of a cluster, and how a run connects to one. The work is in the cluster
//! crate; this adds options, signals and messages of the command line.

mod args;

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use serde_json::json;
use sluice::extension::{
    ClusterOptions, CommandResult, CredentialArgs, Engine, ExitStatus, Failure, Level, Shell,
    SignalListener, SignalMessages, Verb, is_json, log_json_message, log_message,
};
use sluice_cluster::executor::{self, ExecutorOptions};
use sluice_cluster::local::LocalClusterOptions;
use sluice_cluster::scheduler::{self, SchedulerOptions};
use sluice_cluster::status::ClusterStatus;
use sluice_cluster::{
    Address, Ballista, Credentials, LocalCluster, SchedulerEndpoint, Secret, logging, unit,
    write_keys,
};
use sluice_io::escape::{printable, printable_sentence};
use sluice_model::Error;
use sluice_model::time::TimeLength;
use sluice_pipeline::dispatch::{Carrier, ProgramIdentity};
use sluice_pipeline::run::{Options, Stop};

use args::{
    ClusterArgs, ClusterCommand, ExecutorArgs, KeysArgs, SchedulerArgs, StatusArgs, UnitArgs,
};

inventory::submit! {
    Verb { name: "cluster", define, run }
}

inventory::submit! {
    Engine { connect }
}

/// Printed at the first signal.
const STOP_MESSAGES: SignalMessages = ["stopping", "stopping: once more ends it at once"];

fn define(command: Command) -> Command {
    ClusterArgs::augment_args(command).about("Run the processes of a cluster")
}

fn run(matches: &ArgMatches, shell: &Shell) -> CommandResult {
    let args = ClusterArgs::from_arg_matches(matches);
    let args = args.map_err(|e| Failure::Usage(e.to_string()))?;
    start_library_logs();
    match &args.command {
        ClusterCommand::Scheduler(args) => serve_scheduler(args, shell),
        ClusterCommand::Executor(args) => serve_executor(args, shell),
        ClusterCommand::Status(args) => status(args),
        ClusterCommand::Keys(args) => make_keys(args),
        ClusterCommand::Unit(args) => serve_unit(args, shell),
    }
}

/// How long a unit may show no sign of life by default.
const PATIENCE: &str = "30m";

/// Connects to the cluster that these options name, and checks that it runs the same program.
/// Submits nothing.
fn connect(reach: &ClusterOptions, shell: &Shell) -> Result<Box<dyn Carrier>, Failure> {
    start_library_logs();
    let program = ProgramIdentity::new(&shell.registry);
    let patience = time(reach.patience.as_deref().unwrap_or(PATIENCE))?;
    let ballista = match (&reach.scheduler, reach.local_cluster) {
        (Some(scheduler), _) => {
            let scheduler = endpoint(scheduler, credentials(&reach.credentials)?)?;
            Ballista::with_scheduler(scheduler, program, patience)
        }
        (None, Some(_)) if has_credentials(&reach.credentials) => {
            let what = "--secret-file and --tls are for --scheduler: a local cluster has a secret \
                        of its own";
            return Err(Failure::Usage(what.into()));
        }
        (None, Some(executors)) => {
            let (threads, allow_exec) = (reach.jobs.unwrap_or_else(cores), reach.allow_exec);
            let quiet = shell.quiet;
            let say = move |text: &str| {
                if !quiet {
                    log_message(&printable_sentence(text));
                }
            };
            let options = LocalClusterOptions { executors, threads, allow_exec };
            Ballista::with_local_cluster(LocalCluster::start(&options, say)?, program, patience)
        }
        (None, None) => {
            let what = "--engine ballista needs --scheduler HOST:PORT, or --local-cluster N to \
                        try it on this machine";
            return Err(Failure::Usage(what.into()));
        }
    };
    ballista.check()?;
    Ok(Box::new(ballista))
}

/// Writes the logs of the cluster libraries, as JSON with JSON logs.
fn start_library_logs() {
    if !is_json() {
        return logging::start(logging::write_to_stderr);
    }
    logging::start(|level, target, text| {
        let level = match level {
            "ERROR" => Level::Error,
            "WARN" => Level::Warning,
            "INFO" => Level::Info,
            _ => Level::Debug,
        };
        log_json_message(level, "library", text, json!({ "target": target }));
    });
}

fn serve_scheduler(args: &SchedulerArgs, shell: &Shell) -> CommandResult {
    let options = SchedulerOptions {
        listen: address(&args.listen)?,
        advertise: args.advertise.clone(),
        credentials: process_credentials(&args.credentials, args.with_parent)?,
        executor_timeout: time(&args.executor_timeout)?,
        program: ProgramIdentity::new(&shell.registry),
    };
    until_stopped(args.with_parent, shell, |stop, say| scheduler::serve(&options, stop, say))
}

fn serve_executor(args: &ExecutorArgs, shell: &Shell) -> CommandResult {
    let slots = args.slots.unwrap_or_else(cores);
    let credentials = process_credentials(&args.credentials, args.with_parent)?;
    let options = ExecutorOptions {
        scheduler: endpoint(&args.scheduler, credentials)?,
        name: args.name.clone(),
        slots,
        jobs: args.jobs.unwrap_or_else(|| (cores() / slots).max(1)),
        work_dir: args.work_dir.clone(),
        allow_exec: args.allow_exec,
        program: ProgramIdentity::new(&shell.registry),
    };
    until_stopped(args.with_parent, shell, |stop, say| executor::serve(&options, stop, say))
}

/// Runs a scheduler or an executor until a signal stops it.
fn until_stopped(
    with_parent: bool,
    shell: &Shell,
    serve: impl FnOnce(&Stop, &(dyn Fn(&str) + Sync)) -> Result<(), Error>,
) -> CommandResult {
    let stop = Arc::<Stop>::default();
    let quiet = shell.quiet;
    let _listening = SignalListener::start(Arc::clone(&stop), &STOP_MESSAGES, move |text| {
        if !quiet {
            log_message(text);
        }
    });
    if with_parent {
        stop_with_stdin(Arc::clone(&stop))?;
    }
    serve(&stop, &|text| shell.info(&printable_sentence(text)))?;
    Ok(ExitStatus::Done)
}

/// Requests `stop` when stdin closes.
fn stop_with_stdin(stop: Arc<Stop>) -> Result<(), Failure> {
    let watch = move || {
        let _over = io::stdin().lock().read_to_end(&mut Vec::new());
        stop.request();
    };
    let thread = std::thread::Builder::new().name("sluice-parent".into()).spawn(watch);
    thread.map(drop).map_err(|e| Failure::Failed(format!("cannot start a thread: {e}")))
}

fn status(args: &StatusArgs) -> CommandResult {
    let status =
        ClusterStatus::fetch(&endpoint(&args.scheduler, credentials(&args.credentials)?)?)?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{:#}", status.to_json())?;
    } else {
        for line in status.lines() {
            writeln!(out, "{}", printable(&line))?;
        }
    }
    out.flush()?;
    Ok(ExitStatus::Done)
}

/// Makes a secret and certificates, and prints their files.
fn make_keys(args: &KeysArgs) -> CommandResult {
    let mut out = io::stdout().lock();
    for file in write_keys(&args.folder, &args.host)? {
        writeln!(out, "{}", printable(&file.display().to_string()))?;
    }
    out.flush()?;
    Ok(ExitStatus::Done)
}

fn serve_unit(args: &UnitArgs, shell: &Shell) -> CommandResult {
    let (jobs, allow_exec) = (Some(args.jobs.max(1)), args.allow_exec);
    let options = Options { jobs, allow_exec, ..Options::default() };
    unit::serve(&shell.registry, &options)?;
    Ok(ExitStatus::Done)
}

fn endpoint(scheduler: &str, credentials: Credentials) -> Result<SchedulerEndpoint, Failure> {
    Ok(SchedulerEndpoint { address: address(scheduler)?, credentials })
}

fn has_credentials(args: &CredentialArgs) -> bool {
    args.secret_file.is_some() || args.tls.is_some()
}

fn credentials(args: &CredentialArgs) -> Result<Credentials, Failure> {
    let CredentialArgs { secret_file, tls, insecure } = args;
    Ok(Credentials::load(secret_file.as_deref(), tls.as_deref(), *insecure)?)
}

/// The credentials of a process: those in its arguments, or the secret that its parent sends.
fn process_credentials(args: &CredentialArgs, with_parent: bool) -> Result<Credentials, Failure> {
    if with_parent {
        return Ok(Credentials::with_secret(Secret::read_line(&mut io::stdin().lock())?));
    }
    credentials(args)
}

fn address(text: &str) -> Result<Address, Failure> {
    text.parse().map_err(|what| Failure::Usage(format!("`{text}`: {what}")))
}

fn time(text: &str) -> Result<Duration, Failure> {
    Ok(TimeLength::parse(text).map_err(Failure::Usage)?.duration())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
