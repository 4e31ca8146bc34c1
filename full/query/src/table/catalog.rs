//! The catalog of a session. Names are looked up as written, then ignoring case if that is
//! unambiguous.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::TableType;
use sluice_kit::event_table::TableKind;
use sluice_model::Error;

use super::provider::LogTable;
use super::scan_task::external;
use super::{Findings, LogTables};
use crate::session::{InvalidQuery, QueryError, name_list, nearest};

/// The schema that has a table per log.
pub(crate) const ROOT_SCHEMA: &str = "public";

/// Names with another meaning.
const RESERVED_NAMES: [&str; 2] = [ROOT_SCHEMA, "information_schema"];

/// The logs of a session. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog(Arc<RwLock<BTreeMap<String, CatalogEntry>>>);

/// A name of a log.
#[derive(Clone, Debug)]
struct CatalogEntry {
    log: Arc<LogTables>,
    /// Whether listings show it; aliases are not shown.
    is_listed: bool,
}

impl Catalog {
    fn read<T>(&self, look: impl FnOnce(&BTreeMap<String, CatalogEntry>) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(
        &self,
        name: &str,
        log: Arc<LogTables>,
        is_listed: bool,
    ) -> std::result::Result<(), Error> {
        if RESERVED_NAMES.contains(&name) {
            return Err(Error::refused(format!(
                "a log cannot be named `{name}`: the name is reserved"
            )));
        }
        let mut logs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if logs.contains_key(name) {
            return Err(Error::refused(format!("two logs are named `{name}`: rename one")));
        }
        logs.insert(name.to_owned(), CatalogEntry { log, is_listed });
        Ok(())
    }

    pub(crate) fn log(&self, name: &str) -> Option<Arc<LogTables>> {
        self.read(|logs| logs.get(name).map(|entry| Arc::clone(&entry.log)))
    }

    /// The names that are listed.
    pub(crate) fn names(&self) -> Vec<String> {
        let listed = |logs: &BTreeMap<String, CatalogEntry>| {
            let listed = logs.iter().filter(|(_, entry)| entry.is_listed);
            listed.map(|(name, _)| name.clone()).collect()
        };
        self.read(listed)
    }

    fn all_names(&self) -> Vec<String> {
        self.read(|logs| logs.keys().cloned().collect())
    }

    pub(crate) fn take_findings(&self) -> Findings {
        let mut all = Findings::default();
        self.read(|logs| logs.values().for_each(|entry| all.extend(entry.log.findings.take())));
        all
    }

    /// Looks up a log by a name in a query; also returns its exact name.
    fn resolve(&self, written: &str) -> Option<(String, Arc<LogTables>)> {
        let name = resolve(written, &self.all_names())?;
        self.log(&name).map(|log| (name, log))
    }
}

/// The exact match, or else the only match ignoring case.
fn resolve(written: &str, names: &[String]) -> Option<String> {
    if names.iter().any(|name| name == written) {
        return Some(written.to_owned());
    }
    let mut alike = names.iter().filter(|name| name.to_lowercase() == written.to_lowercase());
    let first = alike.next()?;
    alike.next().is_none().then(|| first.clone())
}

/// An error for an unknown name, with a suggestion.
fn not_found(kind: &str, written: &str, known: &[String]) -> DataFusionError {
    let help = match nearest(written, known) {
        Some(name) => format!("there is `{name}`"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("there are: {}", name_list(known)),
    };
    let wrong = InvalidQuery {
        help: Some(help),
        ..InvalidQuery::new(format!("there is no {kind} `{written}`"))
    };
    DataFusionError::External(Box::new(QueryError::Invalid(wrong)))
}

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        [ROOT_SCHEMA.to_owned()].into_iter().chain(self.names()).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if name == ROOT_SCHEMA {
            return Some(Arc::new(RootSchema(self.clone())));
        }
        match self.resolve(name) {
            Some((name, log)) => Some(Arc::new(ChannelTables { name, log })),
            None => Some(Arc::new(MissingLogSchema { name: name.to_owned(), known: self.names() })),
        }
    }
}

/// The schema with a table per log.
#[derive(Debug)]
struct RootSchema(Catalog);

#[async_trait]
impl SchemaProvider for RootSchema {
    fn table_names(&self) -> Vec<String> {
        self.0.names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        match self.0.resolve(name) {
            Some((name, log)) => Ok(Some(Arc::new(LogTable::new(name, log, TableKind::Events)))),
            None => Err(not_found("table", name, &self.0.names())),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.resolve(name).is_some()
    }
}

/// Sets `stop` when dropped: a cancelled query stops reading.
#[derive(Default)]
struct StopOnDrop {
    stop: Arc<AtomicBool>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The schema with a table per channel of a log.
#[derive(Debug)]
struct ChannelTables {
    name: String,
    log: Arc<LogTables>,
}

impl ChannelTables {
    /// Looks up a channel, which may read the log. Blocks.
    fn find(&self, written: &str, stop: &AtomicBool) -> Result<LogTable> {
        let table = |name: &str, kind| {
            LogTable::new(format!("{}.{name}", self.name), Arc::clone(&self.log), kind)
        };
        if let Some(kind) = self.log.table_kind(written, stop).map_err(external)? {
            return Ok(table(written, kind));
        }
        let names = self.log.channels_until(stop).map_err(external)?;
        let what = format!("channel in `{}` called", self.name);
        let name = resolve(written, &names).ok_or_else(|| not_found(&what, written, &names))?;
        let kind = self.log.table_kind(&name, stop).map_err(external)?;
        kind.map(|kind| table(&name, kind)).ok_or_else(|| not_found(&what, written, &names))
    }
}

#[async_trait]
impl SchemaProvider for ChannelTables {
    /// Reads the whole log if its channels are unknown; if that is impossible, returns those
    /// discovered so far.
    fn table_names(&self) -> Vec<String> {
        self.log.channels().unwrap_or_else(|_| self.log.known_channels())
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let (this, written) =
            (Self { name: self.name.clone(), log: Arc::clone(&self.log) }, name.to_owned());
        let stop_on_drop = StopOnDrop::default();
        let stop = Arc::clone(&stop_on_drop.stop);
        let found = tokio::task::spawn_blocking(move || this.find(&written, &stop)).await;
        let found =
            found.map_err(|_| external(Error::internal("looking for a channel panicked")))??;
        Ok(Some(Arc::new(found)))
    }

    async fn table_type(&self, _name: &str) -> Result<Option<TableType>> {
        Ok(Some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        resolve(name, &self.log.known_channels()).is_some()
    }
}

/// The schema of a log that does not exist: every lookup fails with a list of the logs.
#[derive(Debug)]
struct MissingLogSchema {
    name: String,
    known: Vec<String>,
}

#[async_trait]
impl SchemaProvider for MissingLogSchema {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, _name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        Err(not_found("log", &self.name, &self.known))
    }

    fn table_exist(&self, _name: &str) -> bool {
        false
    }
}
