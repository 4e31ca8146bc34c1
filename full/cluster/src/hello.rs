//! The handshake: what a scheduler says of itself, and whether who asks may work with it. Orders carry a
//! greeting, too; the worker that fulfils one compares that once more.

use std::fmt;

use ballista_core::BALLISTA_VERSION;
use serde::{Deserialize, Serialize};
use sluice_core::{Error, ErrorKind};
use sluice_pipeline::dispatch::Greeting;

use crate::address::Address;
use crate::ask::{NoAnswer, ask};

/// Where a scheduler says what it is.
pub(crate) const PATH: &str = "/sluice";

/// What a scheduler says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The version of Sluice.
    pub(crate) sluice: String,
    /// The plugins that are linked, as their kind and name, sorted.
    pub(crate) plugins: Vec<String>,
    /// The version of Ballista.
    pub(crate) ballista: String,
    /// Another one each time a scheduler is started.
    pub(crate) instance: String,
}

impl Hello {
    /// What a scheduler of this program says.
    pub(crate) fn of(greeting: &Greeting, instance: &str) -> Self {
        Self {
            sluice: greeting.sluice.clone(),
            plugins: greeting.plugins.clone(),
            ballista: BALLISTA_VERSION.to_owned(),
            instance: instance.to_owned(),
        }
    }
}

/// Why one does not work with a scheduler.
#[derive(Clone, Debug)]
pub(crate) enum Unmet {
    /// It is not there now.
    Silent(String),
    /// Nothing is to be hoped for by trying again: it is something else, or another version.
    Refused(String),
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(what) | Self::Refused(what) => f.write_str(what),
        }
    }
}

impl From<Unmet> for Error {
    fn from(unmet: Unmet) -> Self {
        match unmet {
            Unmet::Silent(what) => Self::refused(what),
            Unmet::Refused(what) => ErrorKind::NotAllowed(what).into(),
        }
    }
}

/// Asks a scheduler what it is, and compares.
pub(crate) async fn meet(scheduler: &Address, mine: &Greeting) -> Result<Hello, Unmet> {
    let hello: Hello = ask(scheduler, PATH).await.map_err(|no| unmet(scheduler, no))?;
    match differs(&hello, mine) {
        None => Ok(hello),
        Some(what) => Err(Unmet::Refused(format!(
            "the scheduler at {scheduler} is not the same program: {what}; nothing was done"
        ))),
    }
}

/// Why a question to a scheduler was not answered.
pub(crate) fn unmet(scheduler: &Address, no: NoAnswer) -> Unmet {
    match no {
        NoAnswer::Silent(why) => Unmet::Silent(format!(
            "cannot reach the scheduler at {scheduler}: {why}; is `sluice cluster scheduler` running there?"
        )),
        NoAnswer::Stranger => Unmet::Refused(format!(
            "what listens at {scheduler} is no scheduler of Sluice; start one by `sluice cluster scheduler`"
        )),
    }
}

fn differs(hello: &Hello, mine: &Greeting) -> Option<String> {
    if hello.ballista != BALLISTA_VERSION {
        let theirs = &hello.ballista;
        return Some(format!(
            "this has Ballista {BALLISTA_VERSION} and that has Ballista {theirs}"
        ));
    }
    let theirs = Greeting { sluice: hello.sluice.clone(), plugins: hello.plugins.clone() };
    mine.differs(&theirs)
}
